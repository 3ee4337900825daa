#include "core/rank_hosts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

bool RankHosts::are_several() const noexcept {
  return std::any_of(numbers.begin(), numbers.end(), [](int host) { return host != 0; });
}

bool RankHosts::are_apart(int a, int b) const noexcept {
  return !numbers.empty() && numbers[static_cast<std::size_t>(a)] != numbers[static_cast<std::size_t>(b)];
}

std::string RankHosts::where_is(int rank) const {
  auto const index = static_cast<std::size_t>(rank);
  if (rank < 0 || index >= names.size() || !are_several()) return {};
  return fmt::format(" (rank {} is on {})", rank, names[index]);
}

}  // namespace weft
