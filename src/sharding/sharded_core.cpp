#include "sharding/sharded_core.hpp"

#include <fmt/format.h>

#include <chrono>

#include "optim/rule.hpp"
#include "optim/step_inputs.hpp"
#include "runtime/stream_impl.hpp"
#include "runtime/timeline.hpp"
#include "sharding/device_values.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void ShardedOptimizer::Core::check_index(std::size_t index, char const* call) const {
  if (index < shards_.parameter_count()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}::{}: index {} of {} parameters", who_, call, index, shards_.parameter_count()));
}

ShardRange ShardedOptimizer::Core::fixed_shard(std::size_t index, char const* call) const {
  check_index(index, call);
  shards_.check_fixed(call, index);
  return shards_.shard(index);
}

std::vector<BufferView> ShardedOptimizer::Core::gradient_shards() const {
  std::vector<BufferView> views;
  for (ShardPiece const& piece : shards_.pieces()) views.push_back(gradient_of(piece));
  return views;
}

void ShardedOptimizer::Core::check_whole(char const* call, std::size_t index, std::size_t count) const {
  std::size_t const expected = element_count(index);
  if (count == expected) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}::{}: {} elements for parameter {}, which has {}", who_, call, count, index, expected));
}

void ShardedOptimizer::Core::check_inputs(StepInputs const& inputs) const {
  std::string const call = fmt::format("{}::step", who_);
  check_clip_value(call.c_str(), inputs);
  if (!compute_) check_step_number(call.c_str(), inputs);
  if (!compute_ || inputs.stream == nullptr || *inputs.stream == *compute_) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}::step: inputs.stream is another than the one that gradients are computed on, which the "
                          "step runs on; leave it empty",
                          who_));
}

std::vector<float> ShardedOptimizer::Core::state(std::size_t index, std::size_t which) {
  check_usable();
  check_index(index, "state");
  shards_.check_state("state", index, which);
  settle("state");
  if (shards_.is_fixed()) return whole_of({index, which}, shards_.state(index, which));
  return std::vector<float>(element_count(index), state_kind(shards_.options_of(index), which).initial);
}

std::vector<float> ShardedOptimizer::Core::master(std::size_t index) {
  check_usable();
  check_index(index, "master");
  settle("master");
  if (shards_.is_fixed()) return whole_of({index, std::nullopt}, shards_.master(index));
  return read_values(unfixed(index), compute_);
}

// Gathers a whole state or master; `mine` is this rank's part. All states of a parameter have one shape: only the tag
// tells which one a rank asks for.
std::vector<float> ShardedOptimizer::Core::whole_of(Asked const& asked, std::span<float const> mine) {
  std::size_t const index = asked.index;
  auto const [communicator, plan] = owners();
  std::vector<std::size_t> const counts = counts_of(plan, index, communicator.size());
  std::vector<float> whole(element_count(index));
  guarded([&, &communicator = communicator] {
    constexpr std::size_t kMostStates = 7;
    std::size_t const which = asked.state ? *asked.state + 1 : 0;
    CollectiveOptions const how{
        .stream = {}, .timeout = {}, .tag = static_cast<std::uint32_t>(index * (kMostStates + 1) + which + 1)};
    try {
      communicator.all_gather(mine, std::span<float>(whole), Parts{counts}, how).wait();
    } catch (Error const& error) {
      std::string const call =
          asked.state ? fmt::format("state({}, {})", index, *asked.state) : fmt::format("master({})", index);
      throw Error(error.code(), fmt::format("{}::{}: {}; all ranks ask for the same", who_, call, error.what()));
    }
  });
  return whole;
}

std::vector<float> ShardedOptimizer::Core::state_shard(std::size_t index, std::size_t which) const {
  static_cast<void>(fixed_shard(index, "state_shard"));
  shards_.check_state("state_shard", index, which);
  return shards_.state(index, which);
}

std::vector<float> ShardedOptimizer::Core::master_shard(std::size_t index) const {
  static_cast<void>(fixed_shard(index, "master_shard"));
  return shards_.master(index);
}

void ShardedOptimizer::Core::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  ShardRange const mine = fixed_shard(index, "set_state");
  check_whole("set_state", index, values.size());
  shards_.set_state("set_state", index, which, values.subspan(mine.first, mine.count));
}

void ShardedOptimizer::Core::set_state_shard(std::size_t index, std::size_t which, std::span<float const> values) {
  check_index(index, "set_state_shard");
  shards_.set_state("set_state_shard", index, which, values);
}

void ShardedOptimizer::Core::set_parameter(std::size_t index, std::span<float const> values) {
  check_usable();
  ShardRange const mine = fixed_shard(index, "set_parameter");
  check_whole("set_parameter", index, values.size());
  settle("set_parameter");
  set_whole(index, values);
  shards_.set_master("set_parameter", index, values.subspan(mine.first, mine.count));
}

void ShardedOptimizer::Core::set_master_shard(std::size_t index, std::span<float const> values) {
  check_usable();
  check_index(index, "set_master_shard");
  settle("set_master_shard");
  shards_.set_master("set_master_shard", index, values);
}

std::vector<Interval> ShardedOptimizer::Core::updates_since(Event const& origin, Clock::time_point at) const {
  std::vector<Interval> intervals;
  for (Stretch const& one : device_updates_) {
    intervals.push_back({at + origin.elapsed_until(one.from), at + origin.elapsed_until(one.to)});
  }
  return intervals;
}

template <typename Update>
void ShardedOptimizer::Core::time(Update const& enqueue) {
  if (!timed_) return enqueue();
  Stretch stretch;
  stretch.from.record(*compute_);
  enqueue();
  stretch.to.record(*compute_);
  device_updates_.push_back(stretch);
}

void ShardedOptimizer::Core::update(std::span<ShardPiece const> pieces) {
  Clock::time_point const start = now();
  updated_.clear();
  gradients_.clear();
  for (ShardPiece const& piece : pieces) {
    if (!has_gradient(piece)) continue;
    updated_.push_back(piece);
    gradients_.push_back(gradient_of(piece));
  }
  if (compute_) return time([&] { shards_.update(updated_, gradients_); });
  shards_.update(updated_, gradients_);
  updates_.push_back({start, now()});
}

// Nobody waits for the Work: what follows is on the same stream.
void ShardedOptimizer::Core::update_with_norms_on_device() {
  updated_.clear();
  gradients_.clear();
  for (ShardPiece const& piece : shards_.pieces()) {
    wait_for_gradient(piece);
    if (!has_gradient(piece)) continue;
    updated_.push_back(piece);
    gradients_.push_back(gradient_of(piece));
  }
  if (norms_.count() == 0) {
    MemoryScope const scope(MemoryKind::optimizer);
    norms_ = compute_->impl().allocate(2 * shards_.parameter_count(), DataType::f64);
  } else {
    compute_->impl().zero(norms_.data(), norms_.view().bytes());  // zeros for what only others own
  }
  BufferView const norms = norms_.view();
  time([&] { shards_.update_moments(updated_, gradients_, norms); });
  static_cast<void>(owners().communicator.all_reduce(norms, norms, ReduceOp::sum, {compute_, {}}));
  time([&] { shards_.apply(updated_, norms); });
}

void ShardedOptimizer::Core::update_with_norms(CollectiveOptions const& how) {
  if (compute_) return update_with_norms_on_device();
  std::vector<double> norms(2 * shards_.parameter_count(), 0);
  for (ShardPiece const& piece : shards_.pieces()) {
    wait_for_gradient(piece);
    if (!has_gradient(piece)) continue;
    Clock::time_point const start = now();
    auto const part = shards_.update_moments(piece, gradient_of(piece));
    norms[2 * piece.tensor] = part.parameter;
    norms[2 * piece.tensor + 1] = part.direction;
    updates_.push_back({start, now()});
  }
  std::span<double> const view(norms);
  owners().communicator.all_reduce(view, view, ReduceOp::sum, how).wait();
  Clock::time_point const start = now();
  for (ShardPiece const& piece : shards_.pieces()) {
    if (has_gradient(piece)) shards_.apply(piece, {norms[2 * piece.tensor], norms[2 * piece.tensor + 1]});
  }
  updates_.push_back({start, now()});
}

}  // namespace weft
