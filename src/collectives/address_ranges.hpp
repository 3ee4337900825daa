#pragma once

#include <cstddef>
#include <vector>

namespace weft {

/// A set of addresses, made of ranges. Adding in ascending order is fast.
class AddressRanges {
 public:
  void add(void const* begin, std::size_t bytes);
  /// Whether any of [begin, begin + bytes) is in the set.
  [[nodiscard]] bool touches(void const* begin, std::size_t bytes) const noexcept;

 private:
  struct Span {
    std::byte const* begin;
    std::byte const* end;
  };
  std::vector<Span> spans_;  // ascending, none adjoins the next
};

}  // namespace weft
