#include "collectives/shm/symmetric_heap.hpp"

#include <algorithm>

namespace weft::shm {

std::shared_ptr<void> SymmetricHeap::add(std::shared_ptr<Mapping> const& mapping, std::size_t part_bytes) {
  segments_.erase(
      std::remove_if(segments_.begin(), segments_.end(), [](Segment const& s) { return s.mapping.expired(); }),
      segments_.end());
  segments_.push_back({mapping, mapping->data(), part_bytes, ++count_});
  return {mapping, mapping->data() + static_cast<std::size_t>(rank_) * part_bytes};
}

Placement SymmetricHeap::find(void const* data, std::size_t bytes) const noexcept {
  auto const* const begin = static_cast<std::byte const*>(data);
  for (auto const& segment : segments_) {
    auto const* const part = segment.data + static_cast<std::size_t>(rank_) * segment.part_bytes;
    // An expired segment's addresses may meanwhile belong to anything.
    if (begin >= part && begin + bytes <= part + segment.part_bytes && !segment.mapping.expired()) {
      return {static_cast<std::uint64_t>(begin - part), segment.number};
    }
  }
  return {};
}

std::uint64_t SymmetricHeap::pin() {
  std::uint64_t mask = 0;
  pinned_.clear();
  for (auto const& segment : segments_) {
    if (count_ - segment.number >= kRemembered) continue;
    if (auto mapping = segment.mapping.lock()) {
      mask |= std::uint64_t{1} << (count_ - segment.number);
      pinned_.push_back(std::move(mapping));
    }
  }
  return mask;
}

std::byte* SymmetricHeap::address(int rank, Placement placement) const noexcept {
  auto const& in = *segment(placement.segment);
  return in.data + static_cast<std::size_t>(rank) * in.part_bytes + placement.offset;
}

SymmetricHeap::Segment const* SymmetricHeap::segment(std::uint32_t number) const noexcept {
  auto const found =
      std::find_if(segments_.begin(), segments_.end(), [&](Segment const& s) { return s.number == number; });
  return found != segments_.end() ? &*found : nullptr;
}

}  // namespace weft::shm
