#include "collectives/address_ranges.hpp"

#include <algorithm>

namespace weft {

void AddressRanges::add(void const* begin, std::size_t bytes) {
  if (bytes == 0) return;
  auto const* const from = static_cast<std::byte const*>(begin);
  Span added{from, from + bytes};
  auto const first = std::lower_bound(spans_.begin(), spans_.end(), added.begin,
                                      [](Span const& span, std::byte const* at) { return span.end < at; });
  auto last = first;
  for (; last != spans_.end() && last->begin <= added.end; ++last) {
    added = {std::min(added.begin, last->begin), std::max(added.end, last->end)};
  }
  if (first == last) {
    spans_.insert(first, added);
  } else {
    *first = added;
    spans_.erase(first + 1, last);
  }
}

bool AddressRanges::touches(void const* begin, std::size_t bytes) const noexcept {
  if (bytes == 0) return false;
  auto const* const from = static_cast<std::byte const*>(begin);
  auto const found = std::upper_bound(spans_.begin(), spans_.end(), from,
                                      [](std::byte const* at, Span const& span) { return at < span.end; });
  return found != spans_.end() && found->begin < from + bytes;
}

}  // namespace weft
