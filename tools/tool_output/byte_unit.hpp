#pragma once

#include <initializer_list>

namespace weft::tool_output {

/// A unit for the bytes of a table.
struct ByteUnit {
  char const* name;
  double bytes;
  /// Digits behind the point: `of_larger`, or 0 if the unit is a byte.
  [[nodiscard]] int digits(int of_larger) const { return bytes > 1 ? of_larger : 0; }
};

/// The largest unit in which `least`, the smallest number of a column, still shows digits.
inline ByteUnit byte_unit_for(double least) {
  for (ByteUnit const unit : {ByteUnit{"GB", 1e9}, ByteUnit{"MB", 1e6}, ByteUnit{"kB", 1e3}}) {
    if (least >= 0.1 * unit.bytes) return unit;
  }
  return {"bytes", 1};
}

}  // namespace weft::tool_output
