#include "kernels/cpu/reduce.hpp"

#include "runtime/stream_impl.hpp"
#include "sharding/zero_impl.hpp"
#include "weft/event.hpp"

namespace weft {
namespace {

/// As many bytes may still be in cache when they are next used.
constexpr std::size_t kCached = std::size_t{32} << 20;

}  // namespace

void ZeroOptimizer::Impl::launch_reductions() {
  std::size_t const generation = bucketer_.generation();
  bucketer_.finish_launching();
  if (bucketer_.generation() != generation) {
    BucketStorage moved(communicator_, parameter_plan(bucketer_.plan()), MemoryKind::parameters, compute_);
    moved.copy_tensors_from(parameters_);
    parameters_ = std::move(moved);
    adopt_plan();
  }
  if (!shards_.is_fixed()) shards_.fix(parameters_);
}

void ZeroOptimizer::Impl::reduce() {
  check_usable();
  if (reduced_ || !bucketer_.sync()) return;
  guarded([this] {
    wait_parameters();
    launch_reductions();
    finish_reductions();
  });
  reduced_ = true;
}

void ZeroOptimizer::Impl::check_not_reduced(char const* call, std::size_t index) const {
  if (!reduced_) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("ZeroOptimizer::{}({}): gradients are reduced; call step() first", call, index));
}

// A rank whose gradient is missing learns so at the end of the step, as the other ranks go through it.
void ZeroOptimizer::Impl::finish_reductions() {
  try {
    bucketer_.finish();
  } catch (BrokenPromise const& broken) {
    broken_ = broken;
  }
}

// On a GPU, behind the shard's reduction. Shards do not move any more.
void ZeroOptimizer::Impl::look_at(BufferView shard) {
  if (!device_judge_) make_device_judge();
  device_judge_->look_at(judged_as_.at(shard.data), 1, *options_.stream);
}

void ZeroOptimizer::Impl::make_device_judge() {
  std::vector<BufferView> shards;
  for (std::size_t b = 0; b < bucketer_.plan().buckets.size(); ++b) {
    shards.push_back(bucketer_.shard(b));
    judged_as_[shards.back().data] = b;
  }
  device_judge_.emplace(policy_, shards, compute_->device());
}

StepInputs ZeroOptimizer::Impl::judged_on_device(StepInputs const& inputs, bool again) {
  follow(*options_.stream, *compute_);  // after what the caller did to gradients, and what the last step read
  if (!device_judge_) make_device_judge();
  if (again) device_judge_->look_at(0, bucketer_.plan().buckets.size(), *options_.stream);
  StepInputs const decided = device_judge_->decide(communicator_, inputs, *options_.stream);
  judge_.note_decision();
  follow(*compute_, *options_.stream);
  return decided;
}

// Explains what fails because ranks brought different settings to the step.
template <typename Wait>
auto ZeroOptimizer::Impl::explained(bool can_ask, Wait&& wait) {
  try {
    return wait();
  } catch (Error const& error) {
    if (can_ask) settings_.explain(error, communicator_, "ZeroOptimizer::step");
    throw Error(error.code(), StepSettings::name_tags(error.what()));
  }
}

StepInputs ZeroOptimizer::Impl::judged(StepInputs const& inputs, bool again) {
  if (compute_) return judged_on_device(judge_.without_judging(inputs), again);
  if (again) judge_again();
  return explained(true, [&] { return judge_.decide(communicator_, inputs, {{}, {}, settings_.tag()}); });
}

// Gradients may have changed since they were reduced.
void ZeroOptimizer::Impl::judge_again() {
  judge_.begin();
  for (ShardPiece const& piece : shards_.pieces()) judge_.look_at(gradient_of(piece));
}

void ZeroOptimizer::Impl::step(StepInputs const& inputs) {
  check_usable();
  if (!bucketer_.sync()) return bucketer_.finish();
  check_inputs(inputs);
  bool const judges = judge_.is_wanted();
  judge_.check(inputs);
  guarded([&] {
    bool const again = reduced_;
    if (!reduced_) {
      wait_parameters();
      launch_reductions();
      if (judges || !options_.overlap) {
        finish_reductions();
        reduced_ = true;
      }
    }
    if (!compute_) settings_.take(shards_, policy_.scaler, inputs);
    shards_.begin_step(judges ? judged(inputs, again) : judge_.without_judging(inputs));
    forget_updates();
    if (judges && options_.overlap && !shards_.needs_norms()) {
      update_and_gather_from_the_last();
    } else if (options_.overlap && !compute_ && !options_.hook && !shards_.needs_norms()) {
      update_and_gather_as_they_arrive(settings_.tag());
      if (!reduced_) finish_reductions();
    } else {
      if (shards_.needs_norms()) {
        explained(true, [&] { update_with_norms({options_.stream, {}, settings_.tag()}); });
      } else {
        update_as_they_arrive();
      }
      if (!reduced_) finish_reductions();
      launch_gathers(settings_.tag());
    }
    any_marked_ = false;
    if (zero_gradients_) zero_rest();
    if (!options_.overlap) wait_parameters();
  });
  reduced_ = false;
  if (!broken_) return;
  BrokenPromise const broken = *broken_;
  broken_.reset();
  throw broken;
}

void ZeroOptimizer::Impl::update_as_they_arrive() {
  for (std::span<ShardPiece const> const pieces : shards_.by_bucket()) {
    if (pieces.empty()) continue;
    wait_for_gradient(pieces.front());
    update(pieces);
  }
}

// Of the buckets that have arrived, updates the one first that the next forward needs first, which is the last: so its
// gather travels while others are updated. On all ranks gathers leave from the last bucket on, although buckets may
// arrive in different orders. (The host of a GPU cannot tell what has arrived, and a hook may send more of its own
// until the reductions are finished.)
void ZeroOptimizer::Impl::update_and_gather_as_they_arrive(std::uint32_t tag) {
  std::span<std::span<ShardPiece const> const> const buckets = shards_.by_bucket();
  std::vector<char> updated(buckets.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) updated[b] = buckets[b].empty() ? 1 : 0;
  std::size_t to_gather = buckets.size();
  for (std::size_t oldest = 0; oldest < buckets.size();) {
    for (; to_gather > 0 && updated[to_gather - 1] != 0; --to_gather) gathers_.launch(parameters_, to_gather - 1, tag);
    if (updated[oldest] != 0) {
      ++oldest;
      continue;
    }
    std::size_t next = to_gather - 1;
    while (next > oldest && (updated[next] != 0 || !has_arrived(buckets[next].front()))) --next;
    wait_for_gradient(buckets[next].front());
    update(buckets[next]);
    updated[next] = 1;
  }
  for (; to_gather > 0; --to_gather) gathers_.launch(parameters_, to_gather - 1, tag);
}

// Every gradient has arrived, so updates can take the order in which the next forward needs parameters.
void ZeroOptimizer::Impl::update_and_gather_from_the_last() {
  std::span<std::span<ShardPiece const> const> const buckets = shards_.by_bucket();
  for (std::size_t b = buckets.size(); b-- > 0;) {
    if (!buckets[b].empty()) update(buckets[b]);
    gathers_.launch(parameters_, b);
  }
}

// Zeroes what other ranks own: the updates have zeroed what this rank does.
void ZeroOptimizer::Impl::zero_rest() {
  if (options_.collective == BucketCollective::reduce_scatter_and_release) return;  // zeros already
  if (compute_) return zero_rest_on_device();
  std::size_t const ranks = static_cast<std::size_t>(communicator_.size());
  std::size_t bytes = 0;
  for (Bucket const& bucket : bucketer_.plan().buckets) bytes += bucket.bytes() / ranks * (ranks - 1);
  // Streaming stores do not fetch what they overwrite, which pays where no cache keeps it until the next backward.
  auto const store = bytes > kCached ? kernels::Store::streaming : kernels::Store::cached;
  for (std::size_t i = 0; i < shards_.parameter_count(); ++i) {
    BufferView const whole = bucketer_.gradient(i);
    if (whole.count == 0) continue;
    ShardRange const mine = shards_.shard(i);
    BufferView const behind = whole.slice(mine.first + mine.count, whole.count - mine.first - mine.count);
    kernels::zero(whole.data, mine.first * size_of(whole.dtype), store);
    kernels::zero(behind.data, behind.bytes(), store);
  }
}

void ZeroOptimizer::Impl::zero_rest_on_device() {
  for (std::size_t b = 0; b < bucketer_.plan().buckets.size(); ++b) {
    BufferView const mine = bucketer_.shard(b);
    std::size_t const before = mine.bytes() * static_cast<std::size_t>(communicator_.rank());
    std::size_t const behind = mine.bytes() * static_cast<std::size_t>(communicator_.size()) - before - mine.bytes();
    auto* const at = static_cast<std::byte*>(mine.data);
    compute_->impl().zero(at - before, before);
    compute_->impl().zero(at + mine.bytes(), behind);
  }
}

// From the last bucket on: backward finished it last, so the next forward needs it first.
void ZeroOptimizer::Impl::launch_gathers(std::uint32_t tag) {
  for (std::size_t b = parameters_.bucket_count(); b-- > 0;) gathers_.launch(parameters_, b, tag);
}

void ZeroOptimizer::Impl::wait_parameter(std::size_t index) {
  check_usable();
  check_index(index, "wait_parameter");
  guarded([&] { explained(!any_marked_, [&] { gathers_.wait_for(shards_.bucket_of(index)); }); });
}

void ZeroOptimizer::Impl::wait_parameters() {
  check_usable();
  guarded([this] { explained(!any_marked_, [this] { gathers_.wait_for_all(); }); });
}

}  // namespace weft
