#include "collectives/p2p/trees.hpp"

#include <utility>

namespace weft::p2p {
namespace {

/// A position's place in the first tree. Positions count from 1. One whose lowest bit is b has children at a distance
/// of b / 2, or less at the end.
TreePlace place_at(int position, int size) noexcept {
  auto const bit = position & -position;
  TreePlace place;
  auto const up = (position - bit) | (2 * bit);
  place.parent = up <= size ? up : position - bit;  // 0: the root
  if (bit == 1) return place;
  place.before = position - bit / 2;
  for (auto step = bit / 2; step > 0 && place.after < 0; step /= 2) {
    if (position + step <= size) place.after = position + step;
  }
  return place;
}

}  // namespace

std::array<TreePlace, 2> double_tree(int node, int size, bool keep_order) {
  auto const rename = [](TreePlace place, auto const& node_at) {
    if (place.parent == 0) place.parent = -1;
    for (int* const each : {&place.parent, &place.before, &place.after}) {
      if (*each > 0) *each = node_at(*each);
    }
    return place;
  };
  auto const first = rename(place_at(node + 1, size), [](int position) { return position - 1; });
  if (size % 2 == 1 && !keep_order) {
    return {first, rename(place_at((node + 1) % size + 1, size),
                          [size](int position) { return (position - 2 + size) % size; })};
  }
  auto mirrored = rename(place_at(size - node, size), [size](int position) { return size - position; });
  std::swap(mirrored.before, mirrored.after);
  return {first, mirrored};
}

}  // namespace weft::p2p
