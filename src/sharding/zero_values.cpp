// What checkpoints take out of a ZeroOptimizer and put back.
#include "kernels/cpu/optim/gradients.hpp"
#include "optim/rule.hpp"
#include "sharding/zero_impl.hpp"

namespace weft {

std::vector<float> ZeroOptimizer::Impl::state(std::size_t index, std::size_t which) {
  check_usable();
  check_index(index, "state");
  shards_.check_state("state", index, which);
  wait_parameters();
  if (!shards_.is_fixed()) {
    return std::vector<float>(parameters_.tensor(index).count, state_kind(shards_.options_of(index), which).initial);
  }
  return whole_of(index, shards_.state(index, which));
}

std::vector<float> ZeroOptimizer::Impl::master(std::size_t index) {
  check_usable();
  check_index(index, "master");
  wait_parameters();
  if (shards_.is_fixed()) return whole_of(index, shards_.master(index));
  BufferView const parameter = parameters_.tensor(index);
  std::vector<float> values(parameter.count);
  kernels::convert(parameter.data, parameter.dtype, values.data(), DataType::f32, values.size());
  return values;
}

// `mine` is this rank's part.
std::vector<float> ZeroOptimizer::Impl::whole_of(std::size_t index, std::span<float const> mine) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    counts.push_back(0);
    for (ShardPiece const& piece : pieces_of(parameters_.plan(), rank, communicator_.size())) {
      if (piece.tensor == index) counts.back() = piece.count;
    }
  }
  std::vector<float> whole(parameters_.tensor(index).count);
  guarded([&] { communicator_.all_gather(mine, std::span<float>(whole), Parts{counts}).wait(); });
  return whole;
}

void ZeroOptimizer::Impl::check_whole(char const* call, std::size_t index, std::size_t count) const {
  check_index(index, call);
  std::size_t const expected = parameters_.tensor(index).count;
  if (count == expected) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("ZeroOptimizer::{}: {} elements for parameter {}, which has {}",
                                                       call, count, index, expected));
}

void ZeroOptimizer::Impl::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  check_index(index, "set_state");
  shards_.check_fixed("set_state", index);
  check_whole("set_state", index, values.size());
  ShardRange const mine = shards_.shard(index);
  shards_.set_state("set_state", index, which, values.subspan(mine.first, mine.count));
}

void ZeroOptimizer::Impl::set_parameter(std::size_t index, std::span<float const> values) {
  check_whole("set_parameter", index, values.size());
  shards_.check_fixed("set_parameter", index);
  wait_parameters();
  BufferView const parameter = parameters_.tensor(index);
  kernels::convert(values.data(), DataType::f32, parameter.data, parameter.dtype, values.size());
  ShardRange const mine = shards_.shard(index);
  shards_.set_master("set_parameter", index, values.subspan(mine.first, mine.count));
}

void ZeroOptimizer::Impl::set_master_shard(std::size_t index, std::span<float const> values) {
  check_index(index, "set_master_shard");
  wait_parameters();
  shards_.set_master("set_master_shard", index, values);
}

void ZeroOptimizer::Impl::share_parameters() {
  wait_parameters();
  guarded([this] { launch_gathers(); });
}

}  // namespace weft
