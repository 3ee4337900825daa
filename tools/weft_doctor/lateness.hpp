#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft_doctor/dump.hpp"

namespace weft::doctor {

/// The rank that the others waited for longest.
struct Lateness {
  int rank = 0;
  std::int64_t waited_ns = 0;  ///< summed waits of the first rank in calls to which this one came last, but the longest
  std::int64_t within_ns = 0;  ///< from the start of the first call that counts to the end of the last one
};

/// Finds this rank from calls that ended on all ranks: the rank that comes last spends the shortest time in a call,
/// however the hosts' clocks differ. None if the waits are less than a tenth of the time, or if nothing can be said.
/// `dumps`: of one communicator.
[[nodiscard]] std::optional<Lateness> find_lateness(std::vector<Dump const*> const& dumps);

}  // namespace weft::doctor
