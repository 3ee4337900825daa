#include "collectives/host_order.hpp"

#include <utility>

namespace weft {

bool is_exact(DataType dtype, ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max: return is_integer(dtype) || dtype == DataType::boolean;
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
    case ReduceOp::user: return false;
    default: return true;  // logical and bitwise operations
  }
}

HostOrder::HostOrder(std::vector<std::vector<int>> hosts) : hosts_(std::move(hosts)) {
  std::size_t ranks = 0;
  for (auto const& host : hosts_) ranks += host.size();
  for (auto const& host : hosts_) weights_.push_back(static_cast<double>(host.size()) / static_cast<double>(ranks));
}

bool HostOrder::applies_to(DataType dtype, ReduceOp op) const noexcept {
  if (hosts_.empty() || op == ReduceOp::user || is_exact(dtype, op)) return false;
  return !is_integer(dtype) && dtype != DataType::boolean && size_of(dtype) > 1;
}

HostOrder::Levels HostOrder::levels(ReduceOp op) noexcept {
  if (op == ReduceOp::avg) return {ReduceOp::avg, ReduceOp::premul_sum};
  return {op, op == ReduceOp::premul_sum ? ReduceOp::sum : op};
}

void HostOrder::reduce(std::span<void* const> destinations, std::span<void const* const> sources, std::size_t count,
                       DataType dtype, kernels::Reducer const& how) const {
  auto const [inside, between] = levels(how.op);
  auto const bytes = count * size_of(dtype);
  std::vector<std::byte> partials(hosts_.size() * bytes);
  std::vector<void const*> results;
  for (auto const& host : hosts_) {
    std::vector<void const*> contributions;
    std::vector<double> scales;
    for (int const rank : host) {
      contributions.push_back(sources[static_cast<std::size_t>(rank)]);
      if (how.scales != nullptr) scales.push_back(how.scales[rank]);
    }
    void* const partial = partials.data() + results.size() * bytes;
    kernels::reduce({&partial, 1}, contributions, count, dtype, {inside, scales.data(), {}});
    results.push_back(partial);
  }
  kernels::reduce(destinations, results, count, dtype, {between, weights_.data(), {}});
}

}  // namespace weft
