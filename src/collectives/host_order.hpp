#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cpu/reduce.hpp"
#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft {

/// The order of reductions that go by hosts: each host's contributions combine in rank order to a partial result in the
/// data type, and the partial results combine in the order of `hosts`. The bits are the same whichever rank combines
/// and wherever calls are cut.
class HostOrder {
 public:
  /// What combines contributions to a host's result (inside), and the hosts' results to that of all (between).
  struct Levels {
    ReduceOp inside;
    ReduceOp between;
  };

  /// `hosts`: each host's ranks, ascending. Without hosts no reduction goes by hosts.
  explicit HostOrder(std::vector<std::vector<int>> hosts = {});

  /// Whether a reduction goes by hosts, so that its bits depend on that order. False where the order does not matter,
  /// for callers' functions, which need not commute, for 8-bit floats, whose partial results would have too few bits,
  /// and for means of integers, which are truncated.
  [[nodiscard]] bool applies_to(DataType dtype, ReduceOp op) const noexcept;

  /// The operations for `op`. The mean of all is the mean of the hosts' means, weighted by their numbers of ranks;
  /// premul_sum scales contributions only.
  [[nodiscard]] static Levels levels(ReduceOp op) noexcept;
  /// Each host's share of all ranks: the scales for Levels::between of a mean.
  [[nodiscard]] std::vector<double> const& weights() const noexcept { return weights_; }

  /// As kernels::reduce, from the `sources` of all ranks, by rank.
  void reduce(std::span<void* const> destinations, std::span<void const* const> sources, std::size_t count,
              DataType dtype, kernels::Reducer const& how) const;

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<double> weights_;
};

/// The most bytes that each of so many ranks may contribute to a call in which every rank combines all contributions at
/// once, since it holds them together. Larger calls go through the levels of a hierarchy.
[[nodiscard]] constexpr std::size_t most_combined_at_once(std::size_t ranks) noexcept {
  constexpr auto kTogether = std::size_t{512} << 10;
  constexpr auto kLeast = std::size_t{4} << 10;
  constexpr auto kMost = std::size_t{32} << 10;
  return std::clamp(kTogether / ranks, kLeast, kMost);
}

/// Whether contributions may be combined in any order and grouping with the same bits.
[[nodiscard]] bool is_exact(DataType dtype, ReduceOp op) noexcept;

}  // namespace weft
