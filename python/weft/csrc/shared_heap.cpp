#include "shared_heap.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "weft/config.hpp"
#include "weft/error.hpp"

namespace weft::torch_backend {
namespace {

void free_block(void* block);

/// Serves large tensors from the newest of the process's heaps. Heaps are never destroyed: tensors may outlive
/// everything. A process has one, and those that its ancestors had when they forked it.
class HeapAllocator final : public c10::Allocator {
 public:
  explicit HeapAllocator(c10::Allocator* previous) : previous_(*previous) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes >= kLeastBytes) {
      auto const* const heap = heap_.load(std::memory_order_acquire);
      if (heap != nullptr && !is_parents_.load(std::memory_order_relaxed)) {
        if (auto* const block = heap->memory->allocate(bytes)) {
          c10::profiledCPUMemoryReporter().New(block, bytes);
          return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
        }
        say_full(*heap->memory, bytes);
      }
    }
    return previous_.allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, void const* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  void free(void* block) {
    for (auto const* heap = heap_.load(std::memory_order_acquire); heap != nullptr; heap = heap->older) {
      if (!heap->memory->contains(block)) continue;
      c10::profiledCPUMemoryReporter().Delete(block);
      heap->memory->deallocate(block);  // nothing, where the heap is a parent's
      return;
    }
    previous_.raw_deallocate(block);
  }

  /// Under mutex().
  void add(std::shared_ptr<SharedHeap> memory, std::size_t asked) {
    heap_.store(new Heap{std::move(memory), asked, heap_.load()}, std::memory_order_release);
    is_parents_ = false;
    full_said_ = false;
  }
  [[nodiscard]] std::shared_ptr<SharedHeap> current() const {
    auto const* const heap = heap_.load(std::memory_order_acquire);
    return heap == nullptr || is_parents_ ? nullptr : heap->memory;
  }
  /// Bytes that the newest heap was to have, this process's or an ancestor's; 0 without one.
  [[nodiscard]] std::size_t asked() const {
    auto const* const heap = heap_.load(std::memory_order_acquire);
    return heap == nullptr ? 0 : heap->asked;
  }
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

  void before_fork() {
    mutex_.lock();
    for_all([](SharedHeap& heap) { heap.before_fork(); });
  }
  void after_fork_in_parent() {
    for_all([](SharedHeap& heap) { heap.after_fork_in_parent(); });
    mutex_.unlock();
  }
  void after_fork_in_child() {
    is_parents_ = true;
    for_all([](SharedHeap& heap) { heap.after_fork_in_child(); });
    mutex_.unlock();
  }

 private:
  struct Heap {
    std::shared_ptr<SharedHeap> memory;
    std::size_t asked;
    Heap const* older;
  };

  template <typename Action>
  void for_all(Action action) const {
    for (auto const* heap = heap_.load(); heap != nullptr; heap = heap->older) action(*heap->memory);
  }

  void say_full(SharedHeap const& heap, std::size_t bytes) {
    if (full_said_.exchange(true)) return;
    auto const usage = heap.usage();
    TORCH_WARN(
        "weft: the shared heap has no room for a tensor of ", bytes, " bytes (", usage.in_use, " of ", usage.capacity,
        " in use, ", usage.committed, " committed): such tensors come from ordinary memory, and ",
        "collectives copy them. Ask for a larger heap, with WEFT_TORCH_HEAP or weft.shared_heap(), if the machine "
        "has the memory.");
  }

  c10::Allocator& previous_;
  std::atomic<Heap const*> heap_{nullptr};
  std::atomic<bool> is_parents_{false};
  std::atomic<bool> full_said_{false};
  std::mutex mutex_;
};

/// torch keeps a bare pointer to it, and calls free_block() until the process ends: it is never destroyed.
std::atomic<HeapAllocator*>& installed() {
  static std::atomic<HeapAllocator*> allocator{nullptr};
  return allocator;
}

void free_block(void* block) {
  installed().load(std::memory_order_acquire)->free(block);
}

HeapAllocator& allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto* const made = new HeapAllocator(c10::GetCPUAllocator());
    installed().store(made, std::memory_order_release);
    constexpr std::uint8_t kAboveDefault = 1;
    c10::SetCPUAllocator(made, kAboveDefault);
    TORCH_CHECK(c10::GetCPUAllocator() == made,
                "weft: another library has installed a CPU allocator that torch prefers; ",
                "the shared heap cannot serve tensors beside it");
    TORCH_CHECK(
        ::pthread_atfork([] { installed().load()->before_fork(); }, [] { installed().load()->after_fork_in_parent(); },
                         [] { installed().load()->after_fork_in_child(); }) == 0,
        "weft: pthread_atfork failed: no memory");
  });
  return *installed().load(std::memory_order_acquire);
}

std::shared_ptr<SharedHeap> make_heap(std::size_t bytes) {
  try {
    return SharedHeap::create(bytes);
  } catch (Error const& error) {
    TORCH_CHECK_VALUE(error.code() != ErrorCode::invalid_argument, "weft: ", error.what());
    TORCH_CHECK(false, "weft: ", error.what());
  }
}

}  // namespace

void install_heap(std::size_t bytes) {
  auto& heaps = allocator();
  std::lock_guard const lock(heaps.mutex());
  if (heaps.current() == nullptr) return heaps.add(make_heap(bytes), bytes);
  TORCH_CHECK_VALUE(heaps.asked() == bytes, "weft: a shared heap of ", heaps.asked(),
                    " bytes is installed already; tensors lie in it, so that its size cannot change to ", bytes);
}

void install_heap_from_environment() {
  if (auto const bytes = Config::from_environment().torch_heap) install_heap(*bytes);
}

std::shared_ptr<SharedHeap> installed_heap() {
  auto* const heaps = installed().load(std::memory_order_acquire);
  if (heaps == nullptr) return nullptr;
  std::lock_guard const lock(heaps->mutex());
  if (heaps->current() == nullptr && heaps->asked() > 0) heaps->add(make_heap(heaps->asked()), heaps->asked());
  return heaps->current();
}

std::shared_ptr<SharedHeap> current_heap() {
  auto const* const heaps = installed().load(std::memory_order_acquire);
  return heaps == nullptr ? nullptr : heaps->current();
}

}  // namespace weft::torch_backend
