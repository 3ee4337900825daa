#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "collectives/call.hpp"
#include "collectives/shm/channel.hpp"
#include "collectives/shm/segment.hpp"
#include "collectives/shm/store_choice.hpp"
#include "core/cache_line.hpp"

namespace weft::shm {

/// Memory through which ranks give data without waiting for the ranks that get it. Each rank has a feed: a ring of
/// kSlots slots that it fills and the others read. It waits only until the readers of a slot have passed what the slot
/// held before. So the root of small broadcasts, and the ranks that give to a gather's or reduce's root, run ahead of
/// the others.
///
/// Contents too long for a slot's first lines lie in places. A feed has half as many places as slots, or twice, four or
/// eight times that. With half as many, two slots share a place, and filling one may have to wait for the readers of
/// the other; otherwise a place belongs to one slot.
///
/// All ranks step through the slots alike, and each fills or reads one at every step, so one position holds for all
/// feeds. A content too large for one slot takes two or four neighbouring ones. Every content carries the fingerprint
/// of the calls made so far, by which a reader finds out that the giver made other calls. One thread at a time, that of
/// the Channel.
class Feeds {
 public:
  /// Many, because where ranks share cores one of them fills all before the next one's turn.
  static constexpr std::size_t kSlots = 128;
  /// Number of places of a feed, a power of two. The fewest stay in L2; where all of them exceed L2, a place has left
  /// both ranks' L2 by the time it is written again.
  static constexpr std::size_t kLeastPlaces = kSlots / 2;
  static constexpr std::size_t kMostPlaces = 512;
  static constexpr std::size_t kSlotBytes = std::size_t{8} << 10;
  /// Most slots that one content takes.
  static constexpr std::size_t kMostSlots = 4;
  /// Bytes from one place to the next. Places begin at different offsets within a page, so that small contents do not
  /// compete for the same sets of a cache.
  static constexpr std::size_t kPlaceBytes = kSlotBytes + 1024 + kLine;
  /// Most bytes that can be given at once.
  static constexpr std::size_t kMostBytes = kMostSlots * kPlaceBytes;
  static constexpr int kEverybody = -1;

  /// Shared memory of one rank, whose feed has `places` places.
  [[nodiscard]] static constexpr std::size_t bytes_per_rank(std::size_t places) noexcept;

  /// Size of the blocks in which `bytes` are best given: small enough that giver and reader work at the same time,
  /// otherwise as large as possible, because each block costs both of them the passing of a line (docs/decisions/0003).
  [[nodiscard]] static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return kSlotBytes * (bytes <= kSlotBytes ? 1 : bytes <= 16 * kSlotBytes ? 2 : kMostSlots);
  }

  /// Zero-filled memory, bytes_per_rank(places) for each rank, is the initial state. What is given to a root lies in
  /// the first `places_to_root` places.
  Feeds(std::shared_ptr<Mapping> mapping, Channel& channel, std::size_t places, std::size_t places_to_root) noexcept;

  /// Who gets what is given from now on; all ranks set the same.
  enum class Readers { root, all };
  void give_to(Readers readers) noexcept { in_use_ = readers == Readers::root ? places_to_root_ : places_; }

  /// Whether a content is given at once or in two steps. With two, a reader can work on the first while the giver works
  /// on the second. This is for a single content of some length: of several blocks, one is read while the next is given
  /// anyway.
  enum class Way { at_once, in_steps };
  /// The way for a call whose ranks each give or get `bytes`, in blocks of block_bytes().
  [[nodiscard]] static constexpr Way way_of(std::size_t bytes) noexcept {
    constexpr std::size_t kWorthwhile = 2048;
    return bytes > kWorthwhile && bytes <= block_bytes(bytes) ? Way::in_steps : Way::at_once;
  }

  /// Gives `bytes`, at most kMostBytes, to `reader` or kEverybody, once the place's last readers have left it. Calls
  /// fill(place, {offset, length}, store) for each step, which writes those bytes of the content that begins at
  /// `place`. Steps are whole grains of `grain` bytes.
  template <typename Fill>
  void give(int reader, std::size_t bytes, Way way, std::size_t grain, Fill const& fill) {
    auto* const place = open(bytes);
    auto const step = way == Way::at_once ? bytes : std::min(bytes, first_step(bytes, grain));
    stores_.fill(step, bytes, [&](kernels::Store store) { fill(place, ByteRange{0, step}, store); });
    if (step < bytes) {
      tell(step);
      stores_.fill(bytes - step, bytes, [&](kernels::Store store) {
        fill(place, ByteRange{step, bytes - step}, store);
      });
    }
    way == Way::at_once ? close_whole(reader, bytes) : close_steps(reader, bytes);
  }

  /// Calls take(place, {offset, length}) for the `bytes` that `giver` gives, step by step as they come. @throws
  /// Error{mismatch} when the giver made other calls.
  template <typename Take>
  void get(int giver, std::size_t bytes, Way way, Take const& take) {
    if (way == Way::at_once) return take(get_whole(giver, bytes), ByteRange{0, bytes});
    auto const* const place = find(giver, bytes);
    for (std::size_t known = 0; known < bytes;) {
      auto const there = await(giver, bytes, known);
      take(place, ByteRange{known, there - known});
      known = there;
    }
  }
  /// give(), at once, of a content that fits a slot's first lines, written by fill(place). Inlined, because small calls
  /// are little but instructions.
  template <typename Fill>
  void give_short(int reader, std::size_t bytes, Fill const& fill) {
    slots_ = 1;
    auto& given = given_[slot()];
    await_readers(given);
    auto& own = own_heads_[slot()];
    fill(own.payload);
    given = {position_ + 1, reader, kMostPlaces};
    channel_.post(own.flag, flag());
    // Both lines of the first pair, however short the content is: where a reader has fetched the pair, writing both
    // takes as long as writing one.
    prefetch_for_write(head_ahead(own_heads_), std::max(kLinePair, sizeof(Head::flag) + bytes));
  }
  // The parts of get(), for a rank that waits for several givers. All pointers are valid until pass().
  /// A content given at once.
  [[nodiscard, gnu::hot]] std::byte const* get_whole(int giver, std::size_t bytes);
  /// The same for a short content.
  [[nodiscard]] std::byte const* get_short(int giver, std::size_t bytes) {
    slots_ = 1;
    auto const& theirs = heads(giver)[slot()];
    auto const expected = flag();
    auto found = theirs.flag.load(std::memory_order_acquire);
    ready_ = found == expected ? ready_ + 1 : 0;
    if (ready_ > kStreak) prefetch_for_read(head_ahead(heads(giver)), sizeof(Head::flag) + bytes);
    if (found != expected) found = channel_.await_tag(giver, theirs.flag, expected);
    if (found != expected) [[unlikely]]
      channel_.fail_for_difference(giver);
    return theirs.payload;
  }
  /// Where a content given in steps lies.
  [[nodiscard, gnu::hot]] std::byte const* find(int giver, std::size_t bytes);
  /// Waits until more than `known` bytes of it are there; returns how many are.
  [[nodiscard, gnu::hot]] std::size_t await(int giver, std::size_t bytes, std::size_t known);

  /// Goes on to the next content. All ranks call it, each once it has filled or read the current one.
  void pass() { advance_to(position_ + slots_); }

  /// Most bytes that fit a slot's first lines.
  static constexpr std::size_t kHeadBytes = 3 * kLinePair - sizeof(std::uint64_t);

 private:
  static constexpr std::size_t kAhead = 2;
  static constexpr std::size_t kPrefetched = 1024;
  /// A reader prefetches once the giver has been ahead for more than this many contents in a row: fetching lines that
  /// are still being filled costs both ranks.
  static constexpr std::size_t kStreak = 8;

  /// The first lines of a slot: its flag, and contents that are small.
  struct alignas(kLinePair) Head {
    std::atomic<std::uint64_t> flag;  ///< low 32 bits of (position + 1) << 32 | fingerprint of the calls so far
    std::byte payload[kHeadBytes];
    /// Where lines are read one after another, a processor prefetches those behind them. The gap keeps it from fetching
    /// the next slot, which the giver is filling.
    std::byte gap[6 * kLinePair];
  };
  struct alignas(kLinePair) Progress {
    /// Low 32 bits of the number of slots that this rank has passed (a multiple of kPublished) << 32 | fingerprint of
    /// the calls it had made then.
    std::atomic<std::uint64_t> passed;
  };
  static_assert(sizeof(Head) == 9 * kLinePair);
  /// The words of a content given in steps, used instead of a Head. A `ready` from 2^32 positions ago looks like
  /// today's; the fingerprint in `flag` does not.
  struct alignas(kLinePair) Steps {
    std::atomic<std::uint64_t> flag;   ///< as Head's
    std::atomic<std::uint64_t> ready;  ///< low 32 bits of (position + 1) << 32 | bytes that are there
  };
  static constexpr std::size_t kPublished = kLeastPlaces / 4;

  /// What this rank gave last in a slot.
  struct Given {
    std::uint64_t passed_by = 0;  ///< readers that have passed so many slots are done with it
    int reader = kEverybody;
    std::size_t places = kMostPlaces;  ///< how many places were in use then
  };

  [[nodiscard]] std::byte* base(int rank) const noexcept {
    return mapping_->data() + static_cast<std::size_t>(rank) * bytes_per_rank(places_);
  }
  [[nodiscard]] Progress& progress(int rank) const noexcept;
  [[nodiscard]] Head* heads(int rank) const noexcept {
    return std::launder(reinterpret_cast<Head*>(base(rank) + sizeof(Progress)));
  }
  [[nodiscard]] Head& head(int rank) const noexcept;
  [[nodiscard]] Steps* steps(int rank) const noexcept;
  [[nodiscard]] static std::size_t first_step(std::size_t bytes, std::size_t grain) noexcept;
  /// Waits until readers have left the place for the next `bytes`, and returns it.
  [[nodiscard, gnu::hot]] std::byte* open(std::size_t bytes);
  /// Tells readers that `ready` bytes are there.
  void tell(std::size_t ready) noexcept;
  void note_given(int reader) noexcept;
  /// Ends a content that was given at once, or in steps.
  [[gnu::hot]] void close_whole(int reader, std::size_t bytes);
  [[gnu::hot]] void close_steps(int reader, std::size_t bytes);
  /// Where `rank` puts the `bytes` given at `position`.
  [[nodiscard]] std::byte* place(int rank, std::uint64_t position, std::size_t bytes) const noexcept;
  /// Prefetches what `rank` gives kAhead contents from here, supposing that it is as long as this one. `firsts`: the
  /// array with the contents' first lines.
  template <typename First, typename Prefetch>
  void look_ahead(int rank, std::size_t bytes, First const* firsts, Prefetch prefetch) const noexcept;
  [[nodiscard]] std::size_t slot() const noexcept { return position_ % kSlots; }
  [[nodiscard]] std::uint64_t flag() const noexcept { return (position_ + 1) << 32U | channel_.fingerprint(); }
  [[nodiscard]] std::byte const* head_ahead(Head const* heads) const noexcept {
    return reinterpret_cast<std::byte const*>(&heads[(position_ + kAhead) % kSlots]);
  }
  /// Takes slots for the next content, of `bytes`; skips as many as its alignment needs.
  void take_slots(std::size_t bytes);
  /// Stops at every multiple of kPublished, because all steps are aligned.
  void advance_to(std::uint64_t position) {
    position_ = position;
    if (position_ % kPublished == 0) [[unlikely]]
      publish();
  }
  void publish();
  void await_readers(Given const& given) {
    if (given.passed_by > all_passed_) wait_for_readers(given);
  }
  void wait_for_readers(Given const& given);
  void check_alike(int peer, std::uint64_t passed);

  std::shared_ptr<Mapping> mapping_;
  Channel& channel_;
  std::size_t const places_;
  std::size_t const places_to_root_;
  std::size_t in_use_ = places_;  // places; a power of two
  Head* own_heads_;
  std::uint64_t position_ = 0;
  std::size_t slots_ = 1;         // of the current content
  std::size_t ready_ = 0;         // contents in a row that were given when this rank came for them
  std::uint64_t all_passed_ = 0;  // what all others are known to have passed
  std::array<Given, kSlots> given_{};
  std::array<std::uint64_t, 2 * kSlots / kPublished> passed_{};  // what this rank's progress was
  StoreChoice stores_;
};

constexpr std::size_t Feeds::bytes_per_rank(std::size_t places) noexcept {
  constexpr std::size_t kPage = 4096;
  auto const bytes = sizeof(Progress) + kSlots * (sizeof(Head) + sizeof(Steps)) + places * kPlaceBytes;
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace weft::shm
