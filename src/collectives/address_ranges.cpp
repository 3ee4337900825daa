#include "collectives/address_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace weft {

void AddressRanges::add(void const* begin, std::size_t bytes) {
  if (bytes == 0) return;
  auto const* const from = static_cast<std::byte const*>(begin);
  auto const* to = from + bytes;
  auto next = spans_.upper_bound(from);
  if (next != spans_.begin() && std::prev(next)->second >= from) {
    --next;
    if (next->second >= to) return;
  } else {
    next = spans_.emplace_hint(next, from, to);
  }
  auto const grown = next++;
  while (next != spans_.end() && next->first <= to) {  // each range is absorbed once
    to = std::max(to, next->second);
    next = spans_.erase(next);
  }
  grown->second = to;
}

bool AddressRanges::touches(void const* begin, std::size_t bytes) const noexcept {
  if (bytes == 0) return false;
  auto const* const from = static_cast<std::byte const*>(begin);
  auto const next = spans_.upper_bound(from);
  return (next != spans_.end() && next->first < from + bytes) ||
         (next != spans_.begin() && std::prev(next)->second > from);
}

}  // namespace weft
