#include "scheduler/memory/first_fit.hpp"

#include <algorithm>
#include <cstddef>

#include "scheduler/memory/placed_lives.hpp"

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
  PlacedLives placed(sections, order);
  std::vector<Taken> taken;
  for (int const buffer : order) {
    Shape const& mover = sections.shapes[static_cast<std::size_t>(buffer)];
    taken.clear();
    placed.visit_beside(mover, [&](int other) {
      auto const at = static_cast<std::size_t>(other);
      add_taken(mover, sections.shapes[at], offsets[at], taken);
    });
    offsets[static_cast<std::size_t>(buffer)] = lowest_beside(taken, mover.alignment);
    placed.add(buffer);
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
