#include "weft/stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/cpu_stream.hpp"
#include "runtime/stream_impl.hpp"
#include "runtime/timeline.hpp"
#include "weft/error.hpp"

namespace weft {

Stream Stream::cpu(StreamOptions const& options) {
  if (auto* const timeline = Timeline::current()) return Stream(timeline->make_stream(options));
  return Stream(std::make_shared<CpuStream>(options));
}

void Stream::enqueue(std::function<void()> task) {
  impl_->launch_deferred();
  impl_->enqueue(std::move(task));
}

void Stream::synchronize() {
  if (impl_->on_worker()) {
    throw Error(ErrorCode::invalid_argument,
                "Stream::synchronize: called from a task of this stream, which would wait for itself");
  }
  impl_->launch_deferred();
  impl_->synchronize();
}

void Stream::help_until(std::function<bool()> const& enough) {
  impl_->launch_deferred();
  impl_->help_until(enough);
}

Device Stream::device() const noexcept {
  return impl_->device();
}

void Stream::Impl::copy(void* to, void const* from, std::size_t bytes) {
  if (bytes != 0) enqueue([=] { std::memcpy(to, from, bytes); });
}

void Stream::Impl::fill(void* at, std::uint8_t byte, std::size_t bytes) {
  if (bytes != 0) enqueue([=] { std::memset(at, byte, bytes); });
}

Buffer Stream::Impl::allocate(std::size_t count, DataType dtype) {
  return Buffer::host(count, dtype);
}

void Stream::Impl::release(Buffer memory) {
  enqueue([kept = memory.owner()] {});
}

void Stream::Impl::defer(std::weak_ptr<DeferredWork> const& work) {
  std::scoped_lock const lock(deferred_mutex_);
  auto const same = [&](auto const& other) { return !other.owner_before(work) && !work.owner_before(other); };
  if (std::none_of(deferred_.begin(), deferred_.end(), same)) deferred_.push_back(work);
  has_deferred_.store(true, std::memory_order_release);
}

void Stream::Impl::launch_deferred(DeferredWork const* except) {
  if (!has_deferred_.load(std::memory_order_acquire)) return;
  std::vector<std::shared_ptr<DeferredWork>> launched;
  {
    std::scoped_lock const lock(deferred_mutex_);
    std::vector<std::weak_ptr<DeferredWork>> kept;
    for (auto const& deferred : deferred_) {
      auto work = deferred.lock();
      if (work && work.get() == except)
        kept.push_back(deferred);
      else if (work)
        launched.push_back(std::move(work));
    }
    has_deferred_.store(!kept.empty(), std::memory_order_release);
    deferred_ = std::move(kept);
  }
  for (auto const& work : launched) work->launch();
}

}  // namespace weft
