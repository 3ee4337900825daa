#include "scheduler/memory/first_fit.hpp"

#include <algorithm>
#include <cstddef>

namespace weft {

namespace {

/// Offsets that are not possible: what lies between the two.
struct Taken {
  std::int64_t after;
  std::int64_t before;
};

/// What a buffer at `offset` takes from `mover`, where they are needed in the same sections.
void add_taken(Shape const& mover, Shape const& placed, std::int64_t offset, std::vector<Taken>& taken) {
  auto other = placed.pieces.begin();
  for (Piece const& piece : mover.pieces) {
    while (other != placed.pieces.end() && other->end <= piece.begin) ++other;
    for (auto at = other; at != placed.pieces.end() && at->begin < piece.end; ++at) {
      taken.push_back({offset - piece.height, offset + at->height});
    }
  }
}

std::int64_t lowest_beside(std::vector<Taken>& taken, std::int64_t alignment) {
  std::sort(taken.begin(), taken.end(), [](Taken const& a, Taken const& b) { return a.after < b.after; });
  std::int64_t offset = 0;
  for (Taken const& one : taken) {
    if (offset <= one.after) break;
    if (offset < one.before) offset = align_up(one.before, alignment);
  }
  return offset;
}

}  // namespace

std::vector<std::int64_t> first_fit(Sections const& sections, std::span<int const> order) {
  std::vector<std::int64_t> offsets(sections.shapes.size());
  std::vector<Taken> taken;
  for (std::size_t i = 0; i < order.size(); ++i) {
    auto const mover = static_cast<std::size_t>(order[i]);
    taken.clear();
    for (int const placed : order.first(i)) {
      auto const at = static_cast<std::size_t>(placed);
      add_taken(sections.shapes[mover], sections.shapes[at], offsets[at], taken);
    }
    offsets[mover] = lowest_beside(taken, sections.shapes[mover].alignment);
  }
  return offsets;
}

std::int64_t bytes_of(Sections const& sections, std::span<std::int64_t const> offsets) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (!sections.shapes[i].pieces.empty()) bytes = std::max(bytes, offsets[i] + sections.shapes[i].bytes);
  }
  return bytes;
}

}  // namespace weft
