#include "kernels/cpu/reduce.hpp"

#include "sharding/zero_impl.hpp"

namespace weft {
namespace {

/// Bytes that may still be in cache when they are next used.
constexpr std::size_t kCached = std::size_t{32} << 20;

}  // namespace

void ZeroOptimizer::Impl::launch_reductions() {
  std::size_t const generation = bucketer_.generation();
  bucketer_.finish_launching();
  if (bucketer_.generation() != generation) {
    BucketStorage moved(communicator_, parameter_plan(), MemoryKind::parameters);
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

// Whose gradient is missing learns so at the end of the step: the other ranks go through it.
void ZeroOptimizer::Impl::finish_reductions() {
  try {
    bucketer_.finish();
  } catch (BrokenPromise const& broken) {
    broken_ = broken;
  }
}

// Gradients may have changed since they were reduced.
void ZeroOptimizer::Impl::judge_again() {
  judge_.begin();
  for (ShardPiece const& piece : shards_.pieces()) judge_.look_at(gradient_of(piece));
}

void ZeroOptimizer::Impl::step(StepInputs const& inputs) {
  check_usable();
  if (!bucketer_.sync()) return bucketer_.finish();
  bool const judges = judge_.is_wanted();
  if (judges) judge_.check(inputs);
  guarded([&] {
    if (reduced_) {
      if (judges) judge_again();
    } else {
      wait_parameters();
      launch_reductions();
      if (judges || !options_.overlap) {
        finish_reductions();
        reduced_ = true;
      }
    }
    shards_.begin_step(judges ? judge_.decide(communicator_, inputs) : inputs);
    updates_.clear();
    if (judges && options_.overlap && !shards_.needs_norms()) {
      update_and_gather_from_the_last();
    } else {
      if (shards_.needs_norms()) {
        update_with_norms({options_.stream, {}});
      } else {
        update_as_they_arrive();
      }
      if (!reduced_) finish_reductions();
      launch_gathers();
    }
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

// Every gradient is here, so updates can take the order in which the next forward needs parameters.
void ZeroOptimizer::Impl::update_and_gather_from_the_last() {
  std::span<std::span<ShardPiece const> const> const buckets = shards_.by_bucket();
  for (std::size_t b = buckets.size(); b-- > 0;) {
    if (!buckets[b].empty()) update(buckets[b]);
    gathers_.launch(parameters_, b);
  }
}

// The updates have zeroed what this rank owns.
void ZeroOptimizer::Impl::zero_rest() {
  if (options_.collective == BucketCollective::reduce_scatter_and_release) return;  // zeros already
  std::size_t const ranks = static_cast<std::size_t>(communicator_.size());
  std::size_t bytes = 0;
  for (Bucket const& bucket : bucketer_.plan().buckets) bytes += bucket.bytes() / ranks * (ranks - 1);
  // What no cache keeps until the next backward need not be fetched to be overwritten.
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

// From the last bucket on: backward finished it last, so the next forward needs it first.
void ZeroOptimizer::Impl::launch_gathers() {
  for (std::size_t b = parameters_.bucket_count(); b-- > 0;) gathers_.launch(parameters_, b);
}

void ZeroOptimizer::Impl::wait_parameter(std::size_t index) {
  check_usable();
  check_index(index, "wait_parameter");
  guarded([&] { gathers_.wait_for(shards_.bucket_of(index)); });
}

void ZeroOptimizer::Impl::wait_parameters() {
  check_usable();
  guarded([this] { gathers_.wait_for_all(); });
}

}  // namespace weft
