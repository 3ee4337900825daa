#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/shm/segment.hpp"

namespace weft::shm {

/// Where a buffer lies in symmetric memory, in terms that every rank understands. segment 0: private memory.
struct Placement {
  static constexpr std::uint32_t kAnywhere = UINT32_MAX;        ///< no buffer, so its place does not matter
  static constexpr std::uint32_t kSharedHeap = UINT32_MAX - 1;  ///< in the rank's SharedHeap
  static constexpr std::uint64_t kBusy = 1;  ///< offset of private memory that no peer may read where it lies

  std::uint64_t offset;   ///< bytes from the start of the owning rank's part, or heap
  std::uint32_t segment;  ///< number of the allocation, from 1; 0: in none
};

/// The segments behind Communicator::allocate(): each holds one equal part per rank, and all ranks map all of it.
class SymmetricHeap {
 public:
  explicit SymmetricHeap(int rank) noexcept : rank_(rank) {}

  /// Registers a new segment; returns this rank's part, which keeps the mapping alive.
  [[nodiscard]] std::shared_ptr<void> add(std::shared_ptr<Mapping> const& mapping, std::size_t part_bytes);

  /// This rank's part of a segment.
  struct Part {
    std::byte const* begin = nullptr;
    std::size_t bytes = 0;  ///< also from one rank's part to the next rank's
    std::uint32_t segment = 0;

    [[nodiscard]] bool holds(void const* data, std::size_t length) const noexcept {
      auto const* const from = static_cast<std::byte const*>(data);
      return from >= begin && from + length <= begin + bytes;
    }
  };

  /// The part of a living segment that [data, data + bytes) lies in as a whole; an empty one where there is none.
  [[nodiscard]] Part part_of(void const* data, std::size_t bytes) const noexcept;
  /// Where in that part it lies; segment 0 where there is none.
  [[nodiscard]] Placement find(void const* data, std::size_t bytes) const noexcept;

  /// Which of the last kRemembered segments this rank still holds: bit i is that of the last but i. They stay mapped
  /// until unpin(), even if another thread releases them meanwhile.
  [[nodiscard]] std::uint64_t pin();
  void unpin() noexcept { pinned_.clear(); }
  /// Whether a rank whose pin() gave `mask` holds segment `number`. False for segments before the last kRemembered.
  [[nodiscard]] bool is_held(std::uint32_t number, std::uint64_t mask) const noexcept {
    return count_ - number < kRemembered && (mask >> (count_ - number) & 1U) != 0;
  }

  /// Address here of `placement` in rank `rank`'s part of a segment that this rank holds.
  [[nodiscard]] std::byte* address(int rank, Placement placement) const noexcept;

 private:
  static constexpr std::uint32_t kRemembered = 64;
  struct Segment {
    std::weak_ptr<Mapping> mapping;
    std::byte* data = nullptr;
    std::size_t part_bytes = 0;
    std::uint32_t number = 0;
  };
  [[nodiscard]] Segment const* segment(std::uint32_t number) const noexcept;

  int rank_;
  std::uint32_t count_ = 0;
  std::vector<Segment> segments_;  // living ones; few, so searched in order
  std::vector<std::shared_ptr<Mapping>> pinned_;
};

}  // namespace weft::shm
