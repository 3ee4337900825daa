#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cpu/reduce.hpp"
#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft {

/// Reductions that go by hosts: each host's contributions combine in rank order to a partial result of the data type,
/// the partial results in the order of `hosts`. The same bits whoever does it and wherever calls are cut.
class HostOrder {
 public:
  /// Contributions to the result of a host, and the hosts' results to that of all.
  struct Levels {
    ReduceOp inside;
    ReduceOp between;
  };

  /// `hosts`: each one's ranks, ascending. Without any, nothing goes by hosts.
  explicit HostOrder(std::vector<std::vector<int>> hosts = {});

  /// Whether reductions that depend on the order go by hosts. False for callers' functions, which need not commute,
  /// for 8-bit floats, whose partial results have too few bits, and for means of integers, which are truncated.
  [[nodiscard]] bool applies_to(DataType dtype, ReduceOp op) const noexcept;

  /// The mean of all is the mean of the hosts' means, weighted by their ranks; scales are for contributions alone.
  [[nodiscard]] static Levels levels(ReduceOp op) noexcept;
  /// Of the hosts, for Levels::between.
  [[nodiscard]] std::vector<double> const& weights() const noexcept { return weights_; }

  /// As kernels::reduce, of all ranks' `sources`.
  void reduce(std::span<void* const> destinations, std::span<void const* const> sources, std::size_t count,
              DataType dtype, kernels::Reducer const& how) const;

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<double> weights_;
};

/// Whether contributions may be combined in any order and grouping for the same bits.
[[nodiscard]] bool is_exact(DataType dtype, ReduceOp op) noexcept;

}  // namespace weft
