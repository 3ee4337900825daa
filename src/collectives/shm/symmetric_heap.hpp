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

  /// Bytes from the start of the owning rank's part, or heap; of kAnywhere: which segments the rank holds, see
  /// living().
  std::uint64_t offset = 0;
  std::uint32_t segment = 0;  ///< number of the allocation, from 1
};

/// The segments behind Communicator::allocate(): each holds one equal part per rank, and all ranks map all of it.
class SymmetricHeap {
 public:
  explicit SymmetricHeap(int rank) noexcept : rank_(rank) {}

  /// Registers a new segment; returns this rank's part, which keeps the mapping alive.
  [[nodiscard]] std::shared_ptr<void> add(std::shared_ptr<Mapping> const& mapping, std::size_t part_bytes);

  /// Where [data, data + bytes) lies, if wholly inside this rank's part of a living segment.
  [[nodiscard]] Placement find(void const* data, std::size_t bytes) const noexcept;

  /// Bytes from one rank's part of living segment `number` to the next rank's.
  [[nodiscard]] std::size_t part_bytes(std::uint32_t number) const noexcept { return segment(number)->part_bytes; }

  /// Which of the last 64 segments this rank still holds: bit i is that of the last but i.
  [[nodiscard]] std::uint64_t living() const noexcept;
  /// Whether a rank whose living() is `mask` holds segment `number`. False for those before the last 64.
  [[nodiscard]] bool is_held(std::uint32_t number, std::uint64_t mask) const noexcept {
    return count_ - number < 64 && (mask >> (count_ - number) & 1U) != 0;
  }

  /// The mapping of segment `number`, to hold while using address(); null once this rank has released it.
  [[nodiscard]] std::shared_ptr<Mapping> hold(std::uint32_t number) const noexcept;

  /// Address here of `placement` in rank `rank`'s part of `mapping`.
  [[nodiscard]] std::byte* address(Mapping const& mapping, int rank, Placement placement) const noexcept;

 private:
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
};

}  // namespace weft::shm
