#include "collectives/device_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "collectives/host_layout.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Way = DeviceChoice::Way;

void require_equal_settings(std::span<DeviceIntroduction const> ranks) {
  auto const wanted = ranks.front().wanted;
  auto const other = std::find_if(ranks.begin(), ranks.end(), [&](auto const& one) { return one.wanted != wanted; });
  if (other == ranks.end()) return;
  throw Error(
      ErrorCode::mismatch,
      fmt::format("WEFT_DEVICE_BACKEND differs between ranks: rank 0 has {}, rank {} has {}; give all ranks the "
                  "same",
                  to_string(wanted), other - ranks.begin(), to_string(other->wanted)));
}

std::string why_not_nccl(std::span<DeviceIntroduction const> ranks) {
  auto const without = std::find_if(ranks.begin(), ranks.end(), [](auto const& one) { return !one.has_nccl; });
  return without == ranks.end() ? "" : fmt::format("rank {}: {}", without - ranks.begin(), without->why_not);
}

HostLayout layout_of(std::span<DeviceIntroduction const> ranks) {
  std::vector<std::string> names;
  for (auto const& one : ranks) names.emplace_back(one.host);
  return {0, HostLayout::number(names)};
}

/// Why the ranks cannot go by two levels; empty where they can.
std::string why_not_two_levels(HostLayout const& layout) {
  std::size_t least = layout.hosts().front().size();
  std::size_t most = least;
  for (auto const& host : layout.hosts()) {
    least = std::min(least, host.size());
    most = std::max(most, host.size());
  }
  if (most == 1) return fmt::format("each of {} hosts has one rank", layout.hosts().size());
  return least == most ? "" : fmt::format("hosts have unequally many ranks, from {} to {}", least, most);
}

}  // namespace

DeviceChoice choose(std::span<DeviceIntroduction const> ranks) {
  require_equal_settings(ranks);
  auto const wanted = ranks.front().wanted;
  auto const told = wanted != DeviceBackendKind::automatic;
  auto const as_told = fmt::format("WEFT_DEVICE_BACKEND={}", to_string(wanted));
  if (wanted == DeviceBackendKind::staged) return {Way::staged, as_told, true};
  if (auto const lack = why_not_nccl(ranks); !lack.empty()) {
    if (!told) return {Way::staged, lack, false, true};
    throw Error(ErrorCode::unsupported,
                fmt::format("{}; {} needs NCCL on every rank: leave it unset, or see to NCCL", lack, as_told));
  }
  auto const layout = layout_of(ranks);
  if (layout.hosts().size() == 1) return {Way::nccl, told ? as_told : "all ranks are on one host", told};
  if (wanted == DeviceBackendKind::nccl) return {Way::spanning, as_told, true};
  auto const flat = why_not_two_levels(layout);
  if (!flat.empty()) return {Way::staged, flat, told, true};
  return {Way::two_level, told ? as_told : fmt::format("ranks are on {} hosts", layout.hosts().size()), told};
}

}  // namespace weft
