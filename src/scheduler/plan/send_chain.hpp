#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// Tasks that are computed one after another, between which nothing changes for the link: nothing to wait for, and
/// nothing new to send.
struct ChainSegment {
  std::vector<TaskId> tasks{};
  double seconds = 0;
  std::size_t needs = 0;  ///< so many units of gathers, the first ones, have to have been sent
  // Bytes that are live at the most, resident ones included, if everything gathered were held and nothing reduced.
  std::int64_t running_bytes = 0;  ///< while it runs
  std::int64_t before_bytes = 0;   ///< when the segment before it has ended
  std::int64_t freed_bytes = 0;    ///< bytes of what was gathered that all segments before it have freed
};

/// Collectives that are always sent together.
struct ChainUnit {
  std::vector<TaskId> tasks{};
  double seconds = 0;     ///< without the latency of its launch
  std::size_t ready = 0;  ///< so many segments have to have ended before it can be sent
};

/// A step as its busier link sees it. Segments are computed in a fixed order. Gathers, sorted by their first use, are
/// waited for by segments; reductions, sorted by when they are ready, are waited for by updates only, which are left
/// out. best_launches() plans on this.
struct SendChain {
  std::vector<ChainSegment> segments{};
  std::vector<ChainUnit> gathers{};
  std::vector<ChainUnit> reductions{};
  double gather_latency_s = 0;  ///< of a launch
  double reduction_latency_s = 0;
  // Sums over the first units, by how many these are.
  std::vector<double> gather_s{};
  std::vector<double> reduction_s{};
  std::vector<std::int64_t> gathered_bytes{};  ///< made by gathers
  std::vector<std::int64_t> reduced_bytes{};   ///< inputs of reductions, which are free after them
  std::vector<std::int64_t> made_bytes{};      ///< by reductions

  [[nodiscard]] double gather_seconds(std::size_t begin, std::size_t end) const {
    return gather_s[end] - gather_s[begin] + gather_latency_s;
  }
  [[nodiscard]] double reduction_seconds(std::size_t begin, std::size_t end) const {
    return reduction_s[end] - reduction_s[begin] + reduction_latency_s;
  }
};

struct ChainLimits {
  std::size_t gathers = 400;  ///< units at most: small neighbours are joined into one
  std::size_t reductions = 200;
};

/// Makes the chain of a step. `order` has all tasks of `problem`, where nothing is merged, each behind what it waits
/// for. None where more than a tenth of all sending is neither of the main kind and group of gathers nor of that of
/// reductions.
[[nodiscard]] std::optional<SendChain> send_chain(Problem const& problem, std::vector<TaskId> const& order,
                                                  ChainLimits const& limits = {});

}  // namespace weft
