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

/// A buffer in sections instead of time.
struct Shape {
  std::int64_t bytes;
  std::int64_t alignment;
  double duration;            ///< of its life, which may be longer than 64 bits count
  std::vector<Piece> pieces;  ///< by section, apart; none of a buffer that is never needed
  [[nodiscard]] int begin() const noexcept { return pieces.front().begin; }
  [[nodiscard]] int end() const noexcept { return pieces.back().end; }
};

/// Time between two moments at which nothing begins or ends is one section: in a plan it does not matter how long it
/// is.
struct Sections {
  std::vector<Shape> shapes;       ///< one per buffer
  std::vector<std::int64_t> live;  ///< the pieces' heights in sum, per section
  std::int64_t live_bytes = 0;     ///< the most that are needed in one
  std::int64_t quantum = 1;        ///< divides every size, alignment and height: the size of a best plan too
  bool keeps_part = false;         ///< some piece's height is more than is needed there
};

/// `buffers` are valid.
[[nodiscard]] Sections make_sections(std::span<PlannedBuffer const> buffers);

/// The least multiple of `alignment` that is not below `offset`.
[[nodiscard]] inline std::int64_t align_up(std::int64_t offset, std::int64_t alignment) noexcept {
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

}  // namespace weft
