#include "transport/sim/fiber.hpp"

#include <cxxabi.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "weft/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define WEFT_TELLS_SANITIZER 1
#else
#define WEFT_TELLS_SANITIZER 0
#endif

namespace weft::sim {
namespace {

std::size_t page_bytes() noexcept {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// The allocator by which Boost gets a stack of the pool, and gives it back.
struct Borrowed {
  StackPool* pool;
  boost::context::stack_context stack;

  [[nodiscard]] boost::context::stack_context allocate() const { return stack; }
  void deallocate(boost::context::stack_context& used) const { pool->give_back(used); }
};

}  // namespace

std::size_t StackPool::default_bytes() noexcept {
  return WEFT_TELLS_SANITIZER ? 8 * kStackBytes : kStackBytes;
}

StackPool::StackPool(std::size_t bytes) : bytes_(bytes) {}

StackPool::~StackPool() {
  for (void* const stack : mapped_) munmap(stack, bytes_ + page_bytes());
}

boost::context::stack_context StackPool::take() {
  if (free_.empty()) {
    auto const guard = page_bytes();
    void* const base = mmap(nullptr, bytes_ + guard, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base == MAP_FAILED || mprotect(base, guard, PROT_NONE) != 0) {
      throw Error(ErrorCode::out_of_memory,
                  fmt::format("no stack for simulated rank {}: {} (see vm.max_map_count: each takes two mappings)",
                              mapped_.size(), std::strerror(errno)));
    }
    mapped_.push_back(base);
    boost::context::stack_context stack;
    stack.size = bytes_;
    stack.sp = static_cast<char*>(base) + guard + bytes_;
    free_.push_back(stack);
  }
  auto const stack = free_.back();
  free_.pop_back();
  return stack;
}

Fiber::Fiber(StackPool& stacks, std::function<void()> body) : body_(std::move(body)), stack_(stacks.take()) {
  inside_ = boost::context::fiber(std::allocator_arg, Borrowed{&stacks, stack_}, [this](boost::context::fiber&& from) {
    end_switch(nullptr);
    outside_ = std::move(from);
    body_();
    ended_ = true;
    begin_switch(nullptr, bottom_outside_, bytes_outside_);  // null: this stack is left for good
    return std::move(outside_);
  });
}

void Fiber::enter() {
  swap_exceptions();
  auto const* const bottom = static_cast<char const*>(stack_.sp) - stack_.size;
  begin_switch(&memory_outside_, bottom, stack_.size);
  inside_ = std::move(inside_).resume();
#if WEFT_TELLS_SANITIZER
  __sanitizer_finish_switch_fiber(memory_outside_, nullptr, nullptr);
#endif
  swap_exceptions();
}

void Fiber::leave() {
  begin_switch(&memory_inside_, bottom_outside_, bytes_outside_);
  outside_ = std::move(outside_).resume();
  end_switch(memory_inside_);
}

void Fiber::begin_switch([[maybe_unused]] void** memory, [[maybe_unused]] void const* bottom,
                         [[maybe_unused]] std::size_t bytes) noexcept {
#if WEFT_TELLS_SANITIZER
  __sanitizer_start_switch_fiber(memory, bottom, bytes);
#endif
}

void Fiber::end_switch([[maybe_unused]] void* memory) noexcept {
#if WEFT_TELLS_SANITIZER
  __sanitizer_finish_switch_fiber(memory, &bottom_outside_, &bytes_outside_);
#endif
}

void Fiber::swap_exceptions() noexcept {
  auto* const thread = abi::__cxa_get_globals();
  Exceptions now;
  std::memcpy(static_cast<void*>(&now), thread, sizeof now);
  std::memcpy(static_cast<void*>(thread), &exceptions_, sizeof now);
  exceptions_ = now;
}

}  // namespace weft::sim
