#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// Tasks that are computed one after another, between which nothing changes for the link.
struct ChainSegment {
  std::vector<TaskId> tasks{};
  double seconds = 0;
  std::size_t needs = 0;  ///< units of gathers, the first ones
  // Bytes live at the most, resident ones included, were everything gathered held and nothing reduced.
  std::int64_t running_bytes = 0;  ///< meanwhile
  std::int64_t before_bytes = 0;   ///< when the segment before it has ended
  std::int64_t freed_bytes = 0;    ///< of what was gathered: by all segments before it
};

/// Collectives that are always sent together.
struct ChainUnit {
  std::vector<TaskId> tasks{};
  double seconds = 0;     ///< beside the latency of a launch
  std::size_t ready = 0;  ///< so many segments have to have ended
};

/// A step as its busier link sees it: segments are computed in a fixed order; gathers, by their first use, are waited
/// for by some of them; reductions, by when they are ready, are waited for by updates only, which are left out.
struct SendChain {
  std::vector<ChainSegment> segments{};
  std::vector<ChainUnit> gathers{};
  std::vector<ChainUnit> reductions{};
  double gather_latency_s = 0;  ///< of a launch
  double reduction_latency_s = 0;
  // Sums over the first units, by their number.
  std::vector<double> gather_s{};
  std::vector<double> reduction_s{};
  std::vector<std::int64_t> gathered_bytes{};  ///< made by gathers
  std::vector<std::int64_t> reduced_bytes{};   ///< that wait for reductions, and are free after them
  std::vector<std::int64_t> made_bytes{};      ///< by reductions

  [[nodiscard]] double gather_seconds(std::size_t begin, std::size_t end) const {
    return gather_s[end] - gather_s[begin] + gather_latency_s;
  }
  [[nodiscard]] double reduction_seconds(std::size_t begin, std::size_t end) const {
    return reduction_s[end] - reduction_s[begin] + reduction_latency_s;
  }
};

struct ChainLimits {
  std::size_t gathers = 400;  ///< units at most: small neighbours are one
  std::size_t reductions = 200;
};

/// `order` has all tasks of `problem`, where nothing is merged, each behind what it waits for. None where more than a
/// tenth of all sending is not of one kind and group of gathers and one of reductions.
[[nodiscard]] std::optional<SendChain> send_chain(Problem const& problem, std::vector<TaskId> const& order,
                                                  ChainLimits const& limits = {});

}  // namespace weft
