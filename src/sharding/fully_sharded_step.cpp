// FullySharded::Impl: the end of a step.
#include <fmt/format.h>

#include <algorithm>

#include "sharding/fully_sharded_impl.hpp"
#include "sharding/unit_tags.hpp"
#include "weft/error.hpp"
#include "weft/sharded_gradients.hpp"

namespace weft {

void FullySharded::Impl::reduce() {
  check_usable();
  if (reduced_ || !sync_) return;
  check_idle("reduce");
  check_backward("reduce");
  guarded([this] {
    launch_reductions(0);
    wait_for_reductions();
    close_.wait(layout_, settings_);
  });
  reduced_ = true;
}

// Starts the reductions that are left, and the exchanges that end a step.
void FullySharded::Impl::launch_reductions(std::uint32_t settings_tag) {
  reducer_.send_held();
  presence_.begin(written_);
  if (!compute_) announce_close(settings_tag);
  reducer_.close(presence_);
  reducer_.zero_unsent();
}

void FullySharded::Impl::announce_close(std::uint32_t settings_tag) {
  close_.announce(groups_, gatherer_.stream(), reducer_.stream(), settings_tag);
}

bool FullySharded::Impl::has_gradient(ShardPiece const& piece) const {
  try {
    return presence_.has_gradient(piece.tensor);
  } catch (Error const& error) {
    throw Error(error.code(),
                fmt::format("finding out which gradients there are: {}", name_units(error.what(), layout_)));
  }
}

void FullySharded::Impl::wait_for_reductions() {
  for (std::size_t const unit : reducer_.sent()) reducer_.wait_for(unit);
}

void FullySharded::Impl::step(StepInputs const& inputs) {
  check_usable();
  check_idle("step");
  if (!sync_) return;
  check_backward("step");
  bool const judges = judge_.is_wanted();
  judge_.check(inputs);
  check_inputs(inputs);
  guarded([&] {
    if (!compute_) settings_.take(shards_, scaler_, inputs);
    if (reduced_) {
      if (!compute_) announce_close(settings_.tag());  // when reduce() announced it they were not final
    } else {
      launch_reductions(settings_.tag());
    }
    gatherer_.release_all();
    shards_.begin_step(judges ? judged(inputs) : judge_.without_judging(inputs));
    forget_updates();
    std::fill(updated_.begin(), updated_.end(), 0);
    gatherer_.end_step();
    if (shards_.needs_norms()) {
      update_with_norms({});
      std::fill(updated_.begin(), updated_.end(), 1);
      gatherer_.launch_first(updated_);
    } else if (judges || reduced_) {
      update_in_order();
    } else {
      update_as_they_arrive();
    }
    close_.wait(layout_, settings_);
    reducer_.end_step();
    if (compute_) groups_.throw_if_failed();
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

// Measures the shard as it is now: another pass before the step may add to it.
void FullySharded::Impl::judge_flat(std::size_t flat) {
  for (ShardPiece const& piece : shards_.by_bucket()[flat]) {
    judged_[static_cast<std::size_t>(&piece - shards_.pieces().data())] =
        judge_.measure(gradient_of(piece), judged_scale_);
  }
}

std::function<void(std::size_t flat)> FullySharded::Impl::on_shard() {
  if (!judge_.is_wanted()) return {};
  if (!side_.is_gpu()) return [this](std::size_t flat) { judge_flat(flat); };
  return [this](std::size_t flat) { look_at_flat(flat, reducer_.stream()); };
}

void FullySharded::Impl::look_at_flat(std::size_t flat, Stream const& stream) {
  std::span<ShardPiece const> const pieces = shards_.by_bucket()[flat];
  if (pieces.empty()) return;
  device_judge_->look_at(static_cast<std::size_t>(pieces.data() - shards_.pieces().data()), pieces.size(), stream);
}

// Shards were looked at as they arrived. What remains are those that may have changed since, and those in which nothing
// arrived.
StepInputs FullySharded::Impl::judged_on_device(StepInputs const& inputs) {
  for (std::size_t unit = 0; unit < layout_.unit_count(); ++unit) {
    if (!reduced_ && reducer_.is_sent(unit)) continue;
    for (std::size_t flat = layout_.first_flat(unit); flat < layout_.last_flat(unit); ++flat) {
      look_at_flat(flat, *compute_);
    }
  }
  if (scaler_ != nullptr && groups_.replicated) {  // replicas have equal shards, but one alone may have set found_inf
    BufferView const found = scaler_->found_inf_view();
    static_cast<void>(groups_.replicated->all_reduce(found, found, ReduceOp::max, {compute_, {}}));
  }
  judge_.note_decision();
  return device_judge_->decide(groups_.gathers, judge_.without_judging(inputs), *compute_);
}

// Shards were judged as they arrived; they are judged again where they, or the scale, may have changed since.
StepInputs FullySharded::Impl::judged(StepInputs const& inputs) {
  wait_for_reductions();
  if (compute_) return judged_on_device(inputs);
  close_.wait(layout_, settings_);  // before anything is updated
  if (reduced_ || judged_scale_ != judge_.inv_scale()) {
    judged_scale_ = judge_.inv_scale();
    for (std::size_t flat = 0; flat < layout_.flat_count(); ++flat) judge_flat(flat);
  }
  judge_.begin();
  for (NormParts const& piece : judged_) judge_.add(piece);
  std::fill(judged_.begin(), judged_.end(), NormParts{});
  if (scaler_ != nullptr && groups_.replicated) {  // replicas have equal shards, but one alone may have set found_inf
    std::span<float> const found(&scaler_->found_inf(), 1);
    groups_.replicated->all_reduce(found, found, ReduceOp::max).wait();
  }
  return judge_.decide(groups_.gathers, inputs, {});
}

std::span<ShardPiece const> FullySharded::Impl::pieces_of_unit(std::size_t unit) const noexcept {
  std::size_t const first = layout_.first_flat(unit);
  std::size_t count = 0;
  for (std::size_t flat = first; flat < layout_.last_flat(unit); ++flat) count += shards_.by_bucket()[flat].size();
  return count == 0 ? std::span<ShardPiece const>() : std::span(shards_.by_bucket()[first].data(), count);
}

void FullySharded::Impl::update_unit(std::size_t unit) {
  std::span<ShardPiece const> const pieces = pieces_of_unit(unit);
  if (!pieces.empty()) update(pieces);
  updated_[unit] = 1;
  gatherer_.launch_first(updated_);
}

// Of the units that have arrived, updates the one first that the next forward needs first, so that its gather travels
// while others are updated. The host of a GPU cannot tell what has arrived and takes units in the order in which they
// were sent. Units without gradients come last.
void FullySharded::Impl::update_as_they_arrive() {
  auto const is_due = [this](std::size_t unit) { return reducer_.is_sent(unit) && updated_[unit] == 0; };
  for (std::size_t const oldest : reducer_.sent()) {
    while (is_due(oldest)) {
      std::size_t next = 0;
      while (next < units_.size() && !(is_due(next) && !compute_ && reducer_.has_arrived(next))) ++next;
      if (next == units_.size()) next = oldest;
      reducer_.wait_for(next);
      update_unit(next);
    }
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (updated_[unit] == 0) update_unit(unit);
  }
}

// Every gradient has arrived, so updates can take the order in which the next forward needs parameters.
void FullySharded::Impl::update_in_order() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) update_unit(unit);
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
