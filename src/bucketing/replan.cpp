#include "bucketing/replan.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "bucketing/transfer_cost.hpp"

namespace weft {
namespace {

// Measures with the type that has the most bytes, which stands for all.
TransferCost measured(Communicator& communicator, BucketSender& sender, std::span<TensorSpec const> specs) {
  std::map<DataType, std::size_t> bytes;
  std::size_t total = 0;
  for (TensorSpec const& spec : specs) {
    bytes[spec.dtype] += spec.count * size_of(spec.dtype);
    total += spec.count * size_of(spec.dtype);
  }
  auto const most =
      std::max_element(bytes.begin(), bytes.end(), [](auto const& a, auto const& b) { return a.second < b.second; });
  return total == 0 ? TransferCost{} : measure_transfer_cost(communicator, sender, most->first, total);
}

// The least of the ranks' times counts: the rank that came to a bucket last waited for nobody.
double seconds_lost(Communicator& communicator, Observation& seen, TransferCost const& cost) {
  if (seen.seconds.empty()) return 0;
  std::span<double> const seconds(seen.seconds);
  communicator.all_reduce(seconds, seconds, ReduceOp::min).wait();
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    seconds[i] -= cost.seconds + cost.seconds_per_byte * static_cast<double>(seen.bytes[i]);
  }
  auto const middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::max(0.0, *middle);
}

// Takes rank 0's cost, as the rest of the plan comes from there.
TransferCost given(Communicator& communicator, TransferCost const& cost) {
  std::array<double, 2> parts{cost.seconds, cost.seconds_per_byte};
  communicator.broadcast(BufferView(std::span<double>(parts)), 0).wait();
  return {parts[0], parts[1]};
}

}  // namespace

BucketPlan replan(Communicator& communicator, BucketSender& sender, std::span<TensorSpec const> specs,
                  BucketerOptions const& options, Observation seen, std::optional<TransferCost>& cost) {
  communicator.broadcast(BufferView(std::span(seen.order)), 0).wait();
  std::vector<std::size_t> order(seen.order.begin(), seen.order.end());
  if (options.policy == BucketPolicy::caps) return BucketPlan::build(specs, order, options.limits, sender.shards());
  // A bucket cannot travel before the last rank has its gradients.
  std::span<double> const ready(seen.ready);
  communicator.all_reduce(ready, ready, ReduceOp::max).wait();
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return ready[a] < ready[b]; });
  if (!cost) {
    cost = options.transfer_cost ? given(communicator, *options.transfer_cost) : measured(communicator, sender, specs);
    if (!options.transfer_cost) cost->seconds += seconds_lost(communicator, seen, *cost);
  }
  return BucketPlan::optimal(specs, order, ready, *cost, sender.shards());
}

}  // namespace weft
