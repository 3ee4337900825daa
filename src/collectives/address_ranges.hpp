#pragma once

#include <cstddef>
#include <map>

namespace weft {

/// A set of addresses, kept as ranges; ranges that adjoin are joined. With n ranges both functions take O(log n) time.
class AddressRanges {
 public:
  void add(void const* begin, std::size_t bytes);
  /// Whether any of [begin, begin + bytes) is in the set.
  [[nodiscard]] bool touches(void const* begin, std::size_t bytes) const noexcept;

 private:
  std::map<std::byte const*, std::byte const*> spans_;  // begin → end; no range adjoins the next
};

}  // namespace weft
