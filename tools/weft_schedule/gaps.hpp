#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// Why nothing is computed for a while.
enum class GapCause : std::uint8_t {
  head,        ///< nothing was computed before
  tail,        ///< nothing is computed after
  dependency,  ///< on what was sent as soon as it could be
  link,        ///< on what was sent later than it could have been, as its link sent something else
  memory,      ///< on what could have run, or been sent, and was held back: by the capacity, or by the policy's order
};
inline constexpr int kGapCauses = 5;
std::string_view to_string(GapCause cause) noexcept;

/// A time in which nothing is computed, as long as can be.
struct Gap {
  double begin_s = 0;
  double end_s = 0;
  double exposed_s = 0;  ///< of it, while something is sent
  GapCause cause = GapCause::head;
  OpId before = kNone;      ///< the computing that ends it; kNone: tail
  OpId waited_for = kNone;  ///< by that; kNone: nothing, or it was held back
};

/// By rising begin.
[[nodiscard]] std::vector<Gap> gaps_of(OpGraph const& graph, Schedule const& schedule);

struct GapSum {
  double seconds = 0;
  double exposed_s = 0;
  std::size_t count = 0;
};
[[nodiscard]] std::array<GapSum, kGapCauses> sums_of(std::vector<Gap> const& gaps);

}  // namespace weft::schedule_tool
