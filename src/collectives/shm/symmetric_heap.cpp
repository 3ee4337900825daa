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

SymmetricHeap::Part SymmetricHeap::part_of(void const* data, std::size_t bytes) const noexcept {
  for (auto const& segment : segments_) {
    Part const part{segment.data + static_cast<std::size_t>(rank_) * segment.part_bytes, segment.part_bytes,
                    segment.number};
    // An expired segment's addresses may meanwhile belong to anything.
    if (part.holds(data, bytes) && !segment.mapping.expired()) return part;
  }
  return {};
}

Placement SymmetricHeap::find(void const* data, std::size_t bytes) const noexcept {
  auto const part = part_of(data, bytes);
  if (part.segment == 0) return {};
  return {static_cast<std::uint64_t>(static_cast<std::byte const*>(data) - part.begin), part.segment};
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
