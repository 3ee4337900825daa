#include "scheduler/memory/placed_lives.hpp"

#include <bit>
#include <limits>

namespace weft {

PlacedLives::PlacedLives(Sections const& sections, std::span<int const> buffers)
    : sections_(sections),
      buffers_(buffers.begin(), buffers.end()),
      leaf_of_(sections.shapes.size()),
      leaves_(std::bit_ceil(std::max(buffers.size(), std::size_t{1}))),
      latest_end_(2 * leaves_, std::numeric_limits<int>::min()) {
  auto const begin_of = [&](int buffer) { return sections.shapes[static_cast<std::size_t>(buffer)].begin(); };
  std::sort(buffers_.begin(), buffers_.end(), [&](int a, int b) { return begin_of(a) < begin_of(b); });
  begins_.reserve(buffers_.size());
  for (std::size_t leaf = 0; leaf < buffers_.size(); ++leaf) {
    begins_.push_back(begin_of(buffers_[leaf]));
    leaf_of_[static_cast<std::size_t>(buffers_[leaf])] = leaf;
  }
}

void PlacedLives::add(int buffer) {
  auto const index = static_cast<std::size_t>(buffer);
  auto const end = sections_.shapes[index].end();
  for (auto node = leaves_ + leaf_of_[index]; node >= kRoot; node /= 2) {
    if (latest_end_[node] >= end) return;
    latest_end_[node] = end;
  }
}

}  // namespace weft
