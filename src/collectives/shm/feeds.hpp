#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/shm/channel.hpp"
#include "collectives/shm/segment.hpp"
#include "core/cache_line.hpp"

namespace weft::shm {

/// What ranks give without waiting for those who get it. Each rank has a feed, a ring of kSlots slots that it fills and
/// the others read; it waits only where a slot's readers have not passed the slot's content before. So the root of
/// small broadcasts, and the ranks that give to a gather's or reduce's root, run ahead of the others.
///
/// All ranks step through the slots alike, and each fills or reads at every step: one position for all feeds. What a
/// slot is too small for takes two or four of them, side by side. Every content carries the fingerprint of the calls
/// made so far, with which a reader finds a difference at once. One thread at a time, that of the Channel.
class Feeds {
 public:
  /// Many: where ranks share cores, one fills all before the next one's turn.
  static constexpr std::size_t kSlots = 64;
  static constexpr std::size_t kSlotBytes = std::size_t{8} << 10;
  /// Most slots that one content takes.
  static constexpr std::size_t kMostSlots = 4;
  /// From one slot to the next. They begin at different places of a page, so that small contents do not compete for the
  /// same sets of a cache.
  static constexpr std::size_t kPlaceBytes = kSlotBytes + 1024 + kLine;
  /// Most that can be given at once.
  static constexpr std::size_t kMostBytes = kMostSlots * kPlaceBytes;
  static constexpr int kEverybody = -1;

  /// Shared memory of one rank.
  [[nodiscard]] static std::size_t bytes_per_rank() noexcept;

  /// In what blocks `bytes` are best given: small enough that who gives and who gets work at the same time, and
  /// otherwise as large as can be, as each costs both the passing of a line (docs/decisions/0003).
  [[nodiscard]] static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return kSlotBytes * (bytes <= kSlotBytes ? 1 : bytes <= 16 * kSlotBytes ? 2 : kMostSlots);
  }

  /// Zero-filled memory, bytes_per_rank() for each rank, is the initial state.
  Feeds(std::shared_ptr<Mapping> mapping, Channel& channel) noexcept;

  /// Where to put up to kMostBytes that this rank gives next; waits until readers have left that place.
  [[nodiscard]] std::byte* fill(std::size_t bytes);
  /// Lets `reader`, or kEverybody, read what was filled.
  void give(int reader);
  /// What `giver` gives of `bytes`, until pass(). @throws Error{mismatch} when it made other calls.
  [[nodiscard]] std::byte const* get(int giver, std::size_t bytes);
  /// On to the next content; all ranks, each of which has filled or read this one.
  void pass();

 private:
  static constexpr std::size_t kHeadBytes = 2 * kLinePair - sizeof(std::uint64_t);
  static constexpr std::size_t kAhead = 2;
  static constexpr std::size_t kPrefetched = 1024;
  /// A reader looks ahead once the giver has been ahead for so many contents: taking lines that are being filled costs
  /// both.
  static constexpr std::size_t kStreak = 8;

  /// The first line of a slot; small payloads ride in it.
  struct alignas(kLinePair) Head {
    std::atomic<std::uint64_t> flag;  ///< low 32 bits of (position + 1) << 32 | fingerprint of the calls so far
    std::byte payload[kHeadBytes];
  };
  struct alignas(kLinePair) Progress {
    /// Low 32 bits of the slots this rank has left behind, a multiple of kPublished, << 32 | fingerprint of the calls
    /// it had made then.
    std::atomic<std::uint64_t> passed;
  };
  static_assert(sizeof(Head) == 2 * kLinePair);
  static constexpr std::size_t kPublished = kSlots / 4;

  /// What this rank gave last in a slot.
  struct Given {
    std::uint64_t passed_by = 0;  ///< readers that have passed so many slots are done with it
    int reader = kEverybody;
  };

  [[nodiscard]] std::byte* base(int rank) const noexcept;
  [[nodiscard]] Progress& progress(int rank) const noexcept;
  [[nodiscard]] Head* heads(int rank) const noexcept;
  [[nodiscard]] Head& head(int rank) const noexcept;
  [[nodiscard]] std::byte* place(int rank, std::size_t slot, std::size_t bytes) const noexcept;
  /// Prefetches what `rank` gives kAhead contents from here, if those contents are like these.
  template <typename Prefetch>
  void look_ahead(int rank, std::size_t bytes, Prefetch prefetch) const noexcept;
  [[nodiscard]] std::size_t slot() const noexcept { return position_ % kSlots; }
  [[nodiscard]] std::uint64_t flag() const noexcept;
  /// The next content is of `bytes`: skips slots until it finds its place.
  void take_slots(std::size_t bytes);
  void advance_to(std::uint64_t position);
  void await_readers(Given const& given);
  void check_alike(int peer, std::uint64_t passed);

  std::shared_ptr<Mapping> mapping_;
  Channel& channel_;
  std::uint64_t position_ = 0;
  std::size_t slots_ = 1;         // of the current content
  std::size_t filled_ = 0;        // bytes of it, where this rank gives
  std::size_t ready_ = 0;         // contents in a row that were given when this rank came for them
  std::uint64_t all_passed_ = 0;  // what all others are known to have passed
  std::array<Given, kSlots> given_{};
  std::array<std::uint64_t, 2 * kSlots / kPublished> passed_{};  // what this rank's progress was
};

}  // namespace weft::shm
