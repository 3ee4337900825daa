#include "scheduler/memory/first_fit.hpp"

#include <algorithm>
#include <cstddef>

namespace weft {

namespace {

/// A range of offsets that are not possible: those between the two.
struct Taken {
  std::int64_t after;
  std::int64_t before;
};

/// Adds the offsets that `placed`, at `offset`, takes from `mover` where both are needed in the same sections.
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
  // Most pairs never meet. The ends of all lives lie close together in memory, so that this is seen without a look at
  // the shapes.
  struct Life {
    int begin;
    int end;
  };
  std::vector<Life> lives;
  lives.reserve(order.size());
  std::vector<Taken> taken;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Shape const& mover = sections.shapes[static_cast<std::size_t>(order[i])];
    taken.clear();
    for (std::size_t placed = 0; placed < i; ++placed) {
      if (lives[placed].begin >= mover.end() || lives[placed].end <= mover.begin()) continue;
      auto const at = static_cast<std::size_t>(order[placed]);
      add_taken(mover, sections.shapes[at], offsets[at], taken);
    }
    offsets[static_cast<std::size_t>(order[i])] = lowest_beside(taken, mover.alignment);
    lives.push_back({mover.begin(), mover.end()});
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
