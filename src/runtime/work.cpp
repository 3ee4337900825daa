#include "weft/work.hpp"

#include "runtime/work_state.hpp"

namespace weft {

namespace {

void rethrow(std::exception_ptr const& error) {
  if (error) std::rethrow_exception(error);
}

}  // namespace

bool Work::test() const noexcept {
  return !state_ || state_->done();
}

void Work::wait() const {
  if (!state_) return;
  state_->wait();
  rethrow(state_->error());
}

bool Work::wait_for(std::chrono::nanoseconds limit) const {
  if (!state_) return true;
  if (!state_->wait_for(limit)) return false;
  rethrow(state_->error());
  return true;
}

void Work::wait_on(Stream const& stream) const {
  if (test()) return;
  Stream queue = stream;
  queue.enqueue([state = state_] { state->wait(); });
}

std::exception_ptr Work::error() const noexcept {
  return state_ ? state_->error() : nullptr;
}

WorkTimings Work::timings() const noexcept {
  return state_ && state_->done() ? state_->timings : WorkTimings{};
}

}  // namespace weft
