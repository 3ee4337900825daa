#pragma once

#include <initializer_list>

namespace weft::tool_output {

/// A unit of a table's bytes, by its name.
struct ByteUnit {
  char const* name;
  double bytes;
  /// Digits behind the point; there are none of a byte.
  [[nodiscard]] int digits(int of_larger) const { return bytes > 1 ? of_larger : 0; }
};

/// The largest in which `least`, the smallest number of a column, has digits left to show.
inline ByteUnit byte_unit_for(double least) {
  for (ByteUnit const unit : {ByteUnit{"GB", 1e9}, ByteUnit{"MB", 1e6}, ByteUnit{"kB", 1e3}}) {
    if (least >= 0.1 * unit.bytes) return unit;
  }
  return {"bytes", 1};
}

}  // namespace weft::tool_output
