#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/memory_plan.hpp"

namespace weft {

/// Sections [begin, end) in which a buffer has the bytes [offset, offset + height) for itself.
struct Piece {
  int begin;
  int end;
  std::int64_t height;
};

/// A buffer whose life is counted in sections instead of time.
struct Shape {
  std::int64_t bytes;
  std::int64_t alignment;
  double duration;            ///< length of its life, which may be too long for a 64-bit integer
  std::vector<Piece> pieces;  ///< by section, apart; none of a buffer that is never needed
  [[nodiscard]] int begin() const noexcept { return pieces.front().begin; }
  [[nodiscard]] int end() const noexcept { return pieces.back().end; }
};

/// The time of a plan, cut into sections. The time between two moments at which nothing begins or ends is one section:
/// how long it is does not matter to a plan.
struct Sections {
  std::vector<Shape> shapes;       ///< one per buffer
  std::vector<std::int64_t> live;  ///< per section: the sum of the pieces' heights
  std::int64_t live_bytes = 0;     ///< the largest of these sums
  std::int64_t quantum = 1;        ///< divides every size, alignment and height, and so also the size of a best plan
  bool keeps_part = false;         ///< some piece's height is more than is needed there
};

/// `buffers` are valid.
[[nodiscard]] Sections make_sections(std::span<PlannedBuffer const> buffers);

/// The least multiple of `alignment` that is not below `offset`.
[[nodiscard]] inline std::int64_t align_up(std::int64_t offset, std::int64_t alignment) noexcept {
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

}  // namespace weft
