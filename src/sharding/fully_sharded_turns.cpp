// FullySharded::Impl: the turns of units.
#include <fmt/format.h>

#include <string>

#include "sharding/fully_sharded_impl.hpp"
#include "sharding/unit_tags.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

char const* name_of_call(bool before, Phase phase) {
  if (before) return phase == Phase::forward ? "before_forward" : "before_backward";
  return phase == Phase::forward ? "after_forward" : "after_backward";
}

}  // namespace

// The caller's mistakes are found before anything is sent, so they end nothing. Ranks that made other calls may be
// waiting, on any of the communicators, for a call that this rank will not make; so all of them are aborted. Nothing
// else aborts them: a rank whose call is aborted has made other calls too.
std::exception_ptr FullySharded::Impl::final_failure(std::exception_ptr caught) {
  try {
    std::rethrow_exception(caught);
  } catch (Error const& error) {
    if (error.code() == ErrorCode::invalid_argument) return nullptr;
    if (error.code() != ErrorCode::mismatch && error.code() != ErrorCode::aborted) return caught;
    std::string const what = name_units(error.what(), layout_);  // on a GPU any later call may be the first to tell
    groups_.abort(what);
    return std::make_exception_ptr(Error(ErrorCode::mismatch, what));
  } catch (...) {
    return caught;
  }
}

void FullySharded::Impl::refuse(char const* call, std::size_t unit, char const* why) const {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("FullySharded::{}: unit {} '{}' {}", call, unit, layout_.name(unit), why));
}

void FullySharded::Impl::check_unit(std::size_t unit, char const* call) const {
  if (unit < units_.size()) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("FullySharded::{}: unit {} of {}", call, unit, units_.size()));
}

void FullySharded::Impl::check_idle(char const* call) const {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].turn == Turn::forward) refuse(call, unit, "is in use; call after_forward() first");
    if (units_[unit].turn == Turn::backward) refuse(call, unit, "is in use; call after_backward() first");
  }
}

void FullySharded::Impl::check_backward(char const* call) const {
  if (any_backward_) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("FullySharded::{}: no unit had a backward since the last step", call));
}

void FullySharded::Impl::before(Use const& use) {
  check_usable();
  char const* const call = name_of_call(true, use.phase);
  check_unit(use.unit, call);
  UnitState& unit = units_[use.unit];
  bool const backward = use.phase == Phase::backward;
  if (unit.turn != Turn::none) refuse(call, use.unit, "is in use already");
  if (backward && !unit.forwarded) refuse(call, use.unit, "had no forward since the last step");
  if (backward && reduced_) refuse(call, use.unit, "comes after reduce(); call step() first");
  guarded([&] {
    gatherer_.begin(use);
    if (backward) begin_gradients(use);
    gatherer_.wait_for(use.unit);
  });
  unit.turn = backward ? Turn::backward : Turn::forward;
}

// Comes before the wait for the gather, because it may block too.
void FullySharded::Impl::begin_gradients(Use const& use) {
  try {
    reducer_.begin(use.unit, !sync_);
  } catch (...) {
    gatherer_.end(use);
    throw;
  }
}

void FullySharded::Impl::after(Use const& use) {
  check_usable();
  char const* const call = name_of_call(false, use.phase);
  check_unit(use.unit, call);
  UnitState& unit = units_[use.unit];
  bool const backward = use.phase == Phase::backward;
  if (unit.turn != (backward ? Turn::backward : Turn::forward)) {
    refuse(call, use.unit,
           backward ? "is not in use; call before_backward() first" : "is not in use; call before_forward() first");
  }
  if (backward) note_gradients(use.unit);
  unit.turn = Turn::none;
  unit.forwarded = true;
  guarded([&] {
    if (backward) reducer_.end(use.unit);
    gatherer_.end(use);
  });
}

BufferView FullySharded::Impl::parameter(std::size_t index) const {
  check_index(index, "parameter");
  std::size_t const unit = layout_.place(index).unit;
  if (units_[unit].turn == Turn::none) {
    refuse("parameter", unit, "is not in use; call before_forward() or before_backward() first");
  }
  return gatherer_.parameter(index);
}

BufferView FullySharded::Impl::gradient(std::size_t index) const {
  check_index(index, "gradient");
  std::size_t const unit = layout_.place(index).unit;
  if (units_[unit].turn != Turn::backward) refuse("gradient", unit, "is not in backward; call before_backward() first");
  return reducer_.gradient(index);
}

bool FullySharded::Impl::holds_gradients(std::size_t unit) const {
  check_unit(unit, "holds_gradients");
  return reducer_.is_held(unit);
}

void FullySharded::Impl::mark_unused(std::size_t index) {
  BufferView const whole = gradient(index);
  bool const held = reducer_.is_held(layout_.place(index).unit);
  if (!held) side_.zero(whole);
  unused_[index] = 1;
}

bool FullySharded::Impl::has_gradient(std::size_t index) const {
  check_index(index, "has_gradient");
  return presence_.has_gradient(index);
}

// Refuses before anything is sent, so that the caller may correct what is refused.
void FullySharded::Impl::note_gradients(std::size_t unit) {
  for (std::size_t i = layout_.first_parameter(unit); i < layout_.last_parameter(unit); ++i) {
    if (unused_[i] != 0 || !presence_.never_here(i)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("FullySharded::after_backward: parameter {} had no gradient in the first step, and "
                            "options.unused says that it never has one on this rank; mark_unused({}) within backward, "
                            "or UnusedGradients::find to allow changes",
                            i, i));
  }
  for (std::size_t i = layout_.first_parameter(unit); i < layout_.last_parameter(unit); ++i) {
    if (unused_[i] == 0) written_[i] = 1;
    unused_[i] = 0;
  }
  // Shards are judged on the stream's thread, with the scale of the pass that they come from.
  if (!any_backward_ && !compute_) judged_scale_ = judge_.inv_scale();
  any_backward_ = true;
}

void FullySharded::Impl::wait_gathers() {
  check_usable();
  guarded([this] { gatherer_.join(); });
}

bool FullySharded::Impl::set_sync(bool sync) {
  bool const was = sync_;
  if (was && !sync) {  // not where a nested no_sync() ends, perhaps while an error is thrown
    check_usable();
    check_idle("no_sync");
    guarded([this] { reducer_.make_holdable(); });
  }
  sync_ = sync;
  return was;
}

}  // namespace weft
