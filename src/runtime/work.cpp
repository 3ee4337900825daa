#include "weft/work.hpp"

#include "runtime/work_state.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

void rethrow(std::exception_ptr const& error) {
  if (error) std::rethrow_exception(error);
}

/// Launches an operation that is held back. @throws Error{invalid_argument} for one of an open group, which cannot be
/// waited for.
void launch(Work::State const& state) {
  if (state.demand()) return;
  throw Error(
      ErrorCode::invalid_argument,
      "Work: waited for a call of a group that has not ended, so it cannot have begun; call Group::end() first");
}

}  // namespace

bool Work::test() const noexcept {
  if (!state_ || state_->done()) return true;
  static_cast<void>(state_->demand());
  return state_->look();
}

void Work::wait() const {
  if (!state_) return;
  launch(*state_);
  state_->wait();
  rethrow(state_->error());
}

bool Work::wait_for(std::chrono::nanoseconds limit) const {
  if (!state_) return true;
  launch(*state_);
  if (!state_->wait_for(limit)) return false;
  rethrow(state_->error());
  return true;
}

void Work::wait_on(Stream const& stream) const {
  if (!state_) return;
  auto const* device = state_->device();
  if (state_->done() && (device == nullptr || !device->is_captured())) return;
  launch(*state_);
  device = state_->device();
  if (device != nullptr && device->wait_on(stream)) return;
  Stream queue = stream;
  queue.enqueue([state = state_] { state->wait(); });
}

std::exception_ptr Work::error() const noexcept {
  return test() && state_ ? state_->error() : nullptr;
}

std::exception_ptr Work::known_error() const noexcept {
  return state_ ? state_->error() : nullptr;
}

WorkTimings Work::timings() const noexcept {
  return test() && state_ ? state_->timings : WorkTimings{};
}

}  // namespace weft
