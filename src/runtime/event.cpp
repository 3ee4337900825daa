#include "weft/event.hpp"

#include <mutex>
#include <utility>

#include "runtime/stream_impl.hpp"
#include "runtime/work_state.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

/// A mark that a task of its stream completes; used by every device whose tasks run on the host.
class HostMark final : public EventMark {
 public:
  [[nodiscard]] Work::State& state() noexcept { return state_; }

  [[nodiscard]] bool reached() const noexcept override { return state_.done(); }
  void synchronize() const override { state_.wait(); }
  void wait_on(Stream const& stream, std::shared_ptr<EventMark const> const& self) const override {
    if (reached()) return;
    Stream queue = stream;
    queue.enqueue([self] { self->synchronize(); });
  }
  [[nodiscard]] std::chrono::nanoseconds elapsed_until(EventMark const& later) const override {
    auto const* other = dynamic_cast<HostMark const*>(&later);
    if (other == nullptr) {
      throw Error(ErrorCode::invalid_argument, "Event::elapsed_until: the events were recorded on different devices");
    }
    return other->state_.timings.finished - state_.timings.finished;
  }

 private:
  mutable Work::State state_;  // waiting for it changes nothing
};

}  // namespace

std::shared_ptr<EventMark> Stream::Impl::mark() {
  auto mark = std::make_shared<HostMark>();
  enqueue([mark] { mark->state().complete(); });
  return mark;
}

struct Event::State {
  mutable std::mutex mutex;
  std::shared_ptr<EventMark const> mark;

  [[nodiscard]] std::shared_ptr<EventMark const> current() const {
    std::scoped_lock const lock(mutex);
    return mark;
  }
};

Event::Event() : state_(std::make_shared<State>()) {}

void Event::record(Stream const& stream) {
  stream.impl().launch_deferred();
  std::shared_ptr<EventMark const> replaced = stream.impl().mark();
  std::scoped_lock const lock(state_->mutex);
  state_->mark.swap(replaced);
}

void Event::wait_on(Stream const& stream) const {
  if (auto const mark = state_->current()) mark->wait_on(stream, mark);
}

void Event::synchronize() const {
  if (auto const mark = state_->current()) mark->synchronize();
}

bool Event::query() const noexcept {
  auto const mark = state_->current();
  return !mark || mark->reached();
}

std::chrono::nanoseconds Event::elapsed_until(Event const& later) const {
  auto const from = state_->current();
  auto const to = later.state_->current();
  if (!from || !to || !from->reached() || !to->reached()) {
    throw Error(ErrorCode::invalid_argument,
                "Event::elapsed_until: both events must be recorded and reached; synchronize() them first");
  }
  return from->elapsed_until(*to);
}

void follow(Stream const& stream, Stream const& other) {
  Event reached;
  reached.record(other);
  reached.wait_on(stream);
}

}  // namespace weft
