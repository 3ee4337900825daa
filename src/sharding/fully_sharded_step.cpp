// The turns of units, and the end of a step.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sharding/fully_sharded_impl.hpp"
#include "sharding/unit_tags.hpp"
#include "weft/error.hpp"
#include "weft/sharded_gradients.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

char const* name_of_call(bool before, Phase phase) {
  if (before) return phase == Phase::forward ? "before_forward" : "before_backward";
  return phase == Phase::forward ? "after_forward" : "after_backward";
}

}  // namespace

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

// The caller's mistakes are found before anything is sent. Ranks that made other calls may wait, on any of the
// communicators, for one that this rank will not make. Nobody else aborts them, so who is aborted has made other calls
// too.
std::exception_ptr FullySharded::Impl::final_failure(std::exception_ptr caught) {
  try {
    std::rethrow_exception(caught);
  } catch (Error const& error) {
    if (error.code() == ErrorCode::invalid_argument) return nullptr;
    if (error.code() != ErrorCode::mismatch && error.code() != ErrorCode::aborted) return caught;
    groups_.abort(error.what());
    return std::make_exception_ptr(Error(ErrorCode::mismatch, error.what()));
  } catch (...) {
    return caught;
  }
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

// Before the wait, for this one may block too.
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
  if (!held && whole.count != 0) std::memset(whole.data, 0, whole.bytes());
  unused_[index] = 1;
}

bool FullySharded::Impl::has_gradient(std::size_t index) const {
  check_index(index, "has_gradient");
  return presence_.has_gradient(index);
}

bool FullySharded::Impl::has_gradient(ShardPiece const& piece) const {
  try {
    return presence_.has_gradient(piece.tensor);
  } catch (Error const& error) {
    throw Error(error.code(),
                fmt::format("finding out which gradients there are: {}", name_units(error.what(), layout_)));
  }
}

// Before anything is sent, so that the caller may correct what is refused.
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
  any_backward_ = true;
}

bool FullySharded::Impl::set_sync(bool sync) {
  bool const was = sync_;
  if (!sync) {
    check_usable();
    check_idle("no_sync");
    guarded([this] { reducer_.make_holdable(); });
  }
  sync_ = sync;
  return was;
}

void FullySharded::Impl::reduce() {
  check_usable();
  if (reduced_ || !sync_) return;
  check_idle("reduce");
  guarded([this] {
    launch_reductions();
    wait_for_reductions();
  });
  reduced_ = true;
}

// What is left of them, and whatever ends the exchanges of a step.
void FullySharded::Impl::launch_reductions() {
  reducer_.send_held();
  presence_.begin(written_);
  gatherer_.close();
  reducer_.close(presence_);
  reducer_.zero_unsent();
}

void FullySharded::Impl::wait_for_reductions() {
  for (std::size_t const unit : reducer_.sent()) reducer_.wait_for(unit);
}

void FullySharded::Impl::step(StepInputs const& inputs) {
  check_usable();
  check_idle("step");
  if (!sync_) return;
  if (!any_backward_) {
    throw Error(ErrorCode::invalid_argument, "FullySharded::step: no unit had a backward since the last step");
  }
  bool const judges = judge_.is_wanted();
  if (judges) judge_.check(inputs);
  guarded([&] {
    if (!reduced_) launch_reductions();
    gatherer_.release_all();
    shards_.begin_step(judges ? judged(inputs) : inputs);
    updates_.clear();
    std::fill(updated_.begin(), updated_.end(), 0);
    gatherer_.end_step();
    if (shards_.needs_norms()) {
      update_with_norms();
    } else if (judges || reduced_) {
      update_in_order();
    } else {
      update_as_they_arrive();
    }
    gatherer_.wait_for_close();
    reducer_.end_step();
  });
  end_step();
}

void FullySharded::Impl::end_step() {
  for (UnitState& unit : units_) unit.forwarded = false;
  any_backward_ = false;
  reduced_ = false;
  std::optional<std::size_t> const missing = presence_.missing(written_);
  static_cast<void>(presence_.learn());
  std::fill(written_.begin(), written_.end(), std::uint8_t{0});
  if (missing) throw BrokenPromise("FullySharded::step", *missing);
}

// Of the shard as it is: another pass before the step may add to it.
void FullySharded::Impl::judge_flat(std::size_t flat) {
  for (ShardPiece const& piece : shards_.by_bucket()[flat]) {
    judged_[static_cast<std::size_t>(&piece - shards_.pieces().data())] = judge_.measure(gradient_of(piece));
  }
}

// Shards were judged as they arrived, but for those that may have changed since.
StepInputs FullySharded::Impl::judged(StepInputs const& inputs) {
  wait_for_reductions();
  for (std::size_t flat = 0; reduced_ && flat < layout_.flat_count(); ++flat) judge_flat(flat);
  judge_.begin();
  for (NormParts const& piece : judged_) judge_.add(piece);
  std::fill(judged_.begin(), judged_.end(), NormParts{});
  if (scaler_ != nullptr && groups_.replicated) {  // replicas have equal shards, but not what one rank was told
    std::span<float> const found(&scaler_->found_inf(), 1);
    groups_.replicated->all_reduce(found, found, ReduceOp::max).wait();
  }
  return judge_.decide(groups_.gathers, inputs);
}

std::span<ShardPiece const> FullySharded::Impl::pieces_of_unit(std::size_t unit) const noexcept {
  return shards_.pieces().subspan(first_piece_[unit], first_piece_[unit + 1] - first_piece_[unit]);
}

void FullySharded::Impl::update(std::size_t unit) {
  std::span<ShardPiece const> const pieces = pieces_of_unit(unit);
  if (!pieces.empty()) {
    Clock::time_point const start = Clock::now();
    for (ShardPiece const& piece : pieces) {
      if (has_gradient(piece)) shards_.update(piece, gradient_of(piece));
    }
    updates_.push_back({start, Clock::now()});
  }
  updated_[unit] = 1;
  gatherer_.launch_first(updated_);
}

// Those that had no gradients come last.
void FullySharded::Impl::update_as_they_arrive() {
  for (std::size_t const unit : reducer_.sent()) {
    reducer_.wait_for(unit);
    update(unit);
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (updated_[unit] == 0) update(unit);
  }
}

// Every gradient is here, so updates can take the order in which the next forward needs parameters.
void FullySharded::Impl::update_in_order() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) update(unit);
}

// Lamb scales a whole tensor by its norms, and its parts are on several ranks.
void FullySharded::Impl::update_with_norms() {
  wait_for_reductions();
  std::vector<double> norms(2 * layout_.parameter_count(), 0);
  Clock::time_point start = Clock::now();
  for (ShardPiece const& piece : shards_.pieces()) {
    if (!has_gradient(piece)) continue;
    auto const part = shards_.update_moments(piece, gradient_of(piece));
    norms[2 * piece.tensor] = part.parameter;
    norms[2 * piece.tensor + 1] = part.direction;
  }
  updates_.push_back({start, Clock::now()});
  std::span<double> const view(norms);
  groups_.gathers.all_reduce(view, view, ReduceOp::sum).wait();
  start = Clock::now();
  for (ShardPiece const& piece : shards_.pieces()) {
    if (!has_gradient(piece)) continue;
    shards_.apply(piece, {norms[2 * piece.tensor], norms[2 * piece.tensor + 1]});
  }
  updates_.push_back({start, Clock::now()});
  std::fill(updated_.begin(), updated_.end(), 1);
  gatherer_.launch_first(updated_);
}

GradientNorm FullySharded::Impl::measure_gradients(NormType type, float factor) {
  check_usable();
  if (!reduced_) {
    throw Error(ErrorCode::invalid_argument, "FullySharded::measure_gradients: call reduce() first");
  }
  GradientNorm norm;
  guarded([&] { norm = weft::gradient_norm(groups_.gathers, gradient_shards(), type, factor); });
  return norm;
}

}  // namespace weft
