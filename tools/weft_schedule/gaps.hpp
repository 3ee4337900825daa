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
  dependency,  ///< waits for a collective that was sent as early as possible
  link,        ///< waits for a collective that was sent late, because its link was busy with another one
  memory,      ///< waits for something that was held back, by the memory capacity or by the policy's order
};
inline constexpr int kGapCauses = 5;
std::string_view to_string(GapCause cause) noexcept;

/// A longest possible interval in which nothing is computed.
struct Gap {
  double begin_s = 0;
  double end_s = 0;
  double exposed_s = 0;  ///< the part of it in which something is sent
  GapCause cause = GapCause::head;
  OpId before = kNone;      ///< the operator that ends it by computing; kNone for the tail
  OpId waited_for = kNone;  ///< what that operator waited for; kNone: nothing, or it was held back
};

/// All gaps, ordered by begin_s.
[[nodiscard]] std::vector<Gap> gaps_of(OpGraph const& graph, Schedule const& schedule);

struct GapSum {
  double seconds = 0;
  double exposed_s = 0;
  std::size_t count = 0;
};
[[nodiscard]] std::array<GapSum, kGapCauses> sums_of(std::vector<Gap> const& gaps);

}  // namespace weft::schedule_tool
