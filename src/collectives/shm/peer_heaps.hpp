#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/shm/control_block.hpp"
#include "collectives/shm/segment.hpp"
#include "weft/shared_heap.hpp"

namespace weft::shm {

/// The shared heaps of a communicator's ranks, mapped into this process: those of every rank, or none.
class PeerHeaps {
 public:
  PeerHeaps() = default;  ///< none

  /// Collective: maps every rank's heap, or none if some rank has no heap or cannot map one. `own` may be null. A heap
  /// that `own` knows from another communicator is not mapped again.
  [[nodiscard]] static PeerHeaps join(int rank, int size, std::shared_ptr<SharedHeap> const& own,
                                      Exchange const& exchange);

  /// Why there are none although some rank has one; empty where there is nothing to explain.
  [[nodiscard]] std::string const& missing() const noexcept { return missing_; }
  /// The rank that missing() is about, which has no heap or cannot map one; -1 where there is nothing to explain.
  [[nodiscard]] int missing_rank() const noexcept { return missing_rank_; }

  /// Whether [data, data + bytes) lies in this rank's heap.
  [[nodiscard]] bool contains(void const* data, std::size_t bytes) const noexcept {
    auto const* const begin = static_cast<std::byte const*>(data);
    return own_begin_ != nullptr && begin >= own_begin_ && begin < own_end_ &&
           bytes <= static_cast<std::size_t>(own_end_ - begin);
  }
  [[nodiscard]] std::uint64_t offset(void const* data) const noexcept {
    return static_cast<std::uint64_t>(static_cast<std::byte const*>(data) - own_begin_);
  }
  /// Address here of what lies at `offset` in the heap of `rank`.
  [[nodiscard]] std::byte* address(int rank, std::uint64_t offset) const noexcept { return begins_[rank] + offset; }

 private:
  std::array<std::byte*, kMaxRanks> begins_{};
  std::byte* own_begin_ = nullptr;
  std::byte* own_end_ = nullptr;
  std::vector<std::shared_ptr<Mapping>> mappings_;
  std::string missing_;
  int missing_rank_ = -1;
};

}  // namespace weft::shm
