#include <cstring>

#include "sharding/zero_impl.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void ZeroOptimizer::Impl::launch_reductions() {
  std::size_t const generation = bucketer_.generation();
  bucketer_.finish_launching();
  if (bucketer_.generation() != generation) {
    BucketStorage moved(communicator_, bucketer_.plan());
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
    bucketer_.finish();
  });
  reduced_ = true;
}

void ZeroOptimizer::Impl::step(StepInputs const& inputs) {
  check_usable();
  if (!bucketer_.sync()) return bucketer_.finish();
  guarded([&] {
    if (!reduced_) {
      wait_parameters();
      launch_reductions();
      if (!options_.overlap) {
        bucketer_.finish();
        reduced_ = true;
      }
    }
    shards_.begin_step(inputs);
    updates_.clear();
    if (shards_.needs_norms()) {
      update_with_norms();
    } else {
      update_shards();
    }
    if (!reduced_) bucketer_.finish();
    if (zero_gradients_) zero_rest();
    launch_gathers();
    if (!options_.overlap) wait_parameters();
  });
  reduced_ = false;
}

void ZeroOptimizer::Impl::update_shards() {
  std::span<ShardPiece const> const pieces = shards_.pieces();
  for (std::size_t p = 0; p < pieces.size();) {
    wait_for_gradient(pieces[p]);
    Clock::time_point const start = Clock::now();
    std::size_t const bucket = pieces[p].bucket;
    for (; p < pieces.size() && pieces[p].bucket == bucket; ++p) shards_.update(pieces[p], gradient_of(pieces[p]));
    updates_.push_back({start, Clock::now()});
  }
}

// Lamb scales a whole tensor by its norms, and its parts are on several ranks.
void ZeroOptimizer::Impl::update_with_norms() {
  std::vector<double> norms(2 * shards_.parameter_count(), 0);
  for (ShardPiece const& piece : shards_.pieces()) {
    wait_for_gradient(piece);
    Clock::time_point const start = Clock::now();
    auto const part = shards_.update_moments(piece, gradient_of(piece));
    norms[2 * piece.tensor] = part.parameter;
    norms[2 * piece.tensor + 1] = part.direction;
    updates_.push_back({start, Clock::now()});
  }
  std::span<double> const view(norms);
  communicator_.all_reduce(view, view, ReduceOp::sum, {options_.stream, {}}).wait();
  Clock::time_point const start = Clock::now();
  for (ShardPiece const& piece : shards_.pieces()) {
    shards_.apply(piece, {norms[2 * piece.tensor], norms[2 * piece.tensor + 1]});
  }
  updates_.push_back({start, Clock::now()});
}

// The updates have zeroed what this rank owns.
void ZeroOptimizer::Impl::zero_rest() {
  if (options_.collective == BucketCollective::reduce_scatter_and_release) return;  // zeros already
  for (std::size_t i = 0; i < shards_.parameter_count(); ++i) {
    BufferView const whole = bucketer_.gradient(i);
    ShardRange const mine = shards_.shard(i);
    std::size_t const end = mine.first + mine.count;
    if (whole.count == 0) continue;
    std::memset(whole.data, 0, mine.first * size_of(whole.dtype));
    BufferView const behind = whole.slice(end, whole.count - end);
    std::memset(behind.data, 0, behind.bytes());
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
