#pragma once

#include <algorithm>
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

/// Of what each of so many ranks contributes to a call that all of them combine by hosts at once; more goes through the
/// levels of a hierarchy. Contributions of all ranks are held together.
[[nodiscard]] constexpr std::size_t most_combined_at_once(std::size_t ranks) noexcept {
  constexpr auto kTogether = std::size_t{512} << 10;
  constexpr auto kLeast = std::size_t{4} << 10;
  constexpr auto kMost = std::size_t{32} << 10;
  return std::clamp(kTogether / ranks, kLeast, kMost);
}

/// Whether contributions may be combined in any order and grouping for the same bits.
[[nodiscard]] bool is_exact(DataType dtype, ReduceOp op) noexcept;

}  // namespace weft
