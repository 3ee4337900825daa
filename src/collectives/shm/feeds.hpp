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

/// What ranks give without waiting for those who get it. Each rank has a feed, a ring of kSlots slots that it fills and
/// the others read; it waits only where a slot's readers have not passed the slot's content before. So the root of
/// small broadcasts, and the ranks that give to a gather's or reduce's root, run ahead of the others.
///
/// Contents too long for a slot's first lines lie in places: half as many as slots, or twice that, and so on. A place
/// of any number of them belongs to one slot, or to two of which the one that is filled now may have to wait for the
/// other.
///
/// All ranks step through the slots alike, and each fills or reads at every step: one position for all feeds. What a
/// slot is too small for takes two or four of them, side by side. Every content carries the fingerprint of the calls
/// made so far, with which a reader finds a difference. One thread at a time, that of the Channel.
class Feeds {
 public:
  /// Many: where ranks share cores, one fills all before the next one's turn.
  static constexpr std::size_t kSlots = 128;
  /// Places of a feed, a power of two of them. The fewest stay in L2; in what is longer than L2, a place has left both
  /// ranks' L2 when it is written again.
  static constexpr std::size_t kLeastPlaces = kSlots / 2;
  static constexpr std::size_t kMostPlaces = 512;
  static constexpr std::size_t kSlotBytes = std::size_t{8} << 10;
  /// Most slots that one content takes.
  static constexpr std::size_t kMostSlots = 4;
  /// From one place to the next. They begin at different places of a page, so that small contents do not compete for
  /// the same sets of a cache.
  static constexpr std::size_t kPlaceBytes = kSlotBytes + 1024 + kLine;
  /// Most that can be given at once.
  static constexpr std::size_t kMostBytes = kMostSlots * kPlaceBytes;
  static constexpr int kEverybody = -1;

  /// Shared memory of one rank, whose feed has so many places.
  [[nodiscard]] static constexpr std::size_t bytes_per_rank(std::size_t places) noexcept;

  /// In what blocks `bytes` are best given: small enough that who gives and who gets work at the same time, and
  /// otherwise as large as can be, as each costs both the passing of a line (docs/decisions/0003).
  [[nodiscard]] static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return kSlotBytes * (bytes <= kSlotBytes ? 1 : bytes <= 16 * kSlotBytes ? 2 : kMostSlots);
  }

  /// Zero-filled memory, bytes_per_rank(places) for each rank, is the initial state. What is given to a root lies in
  /// the first `places_to_root`.
  Feeds(std::shared_ptr<Mapping> mapping, Channel& channel, std::size_t places, std::size_t places_to_root) noexcept;

  /// Who gets what is given until told otherwise: the same on all ranks.
  enum class Readers { root, all };
  void give_to(Readers readers) noexcept { in_use_ = readers == Readers::root ? places_to_root_ : places_; }

  /// In two steps a reader can work on the first while the giver does on the second. For a content of some length that
  /// is alone: of several blocks one is read while the next one is given.
  enum class Way { at_once, in_steps };
  /// That of a call whose ranks each give or get `bytes`, in blocks of block_bytes().
  [[nodiscard]] static constexpr Way way_of(std::size_t bytes) noexcept {
    constexpr std::size_t kWorthwhile = 2048;
    return bytes > kWorthwhile && bytes <= block_bytes(bytes) ? Way::in_steps : Way::at_once;
  }

  /// Gives up to kMostBytes to `reader`, or kEverybody, once the place's readers have left it: fill(place, {offset,
  /// length}, store) puts those bytes of the content where it lies, step by step. Steps are whole grains of `grain`
  /// bytes.
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

  /// take(place, {offset, length}) for all of the `bytes` that `giver` gives, as they come. @throws Error{mismatch}
  /// when it made other calls.
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
  /// give() at once of what rides in a slot's first lines: fill(place). In line, as small calls are little but
  /// instructions.
  template <typename Fill>
  void give_short(int reader, std::size_t bytes, Fill const& fill) {
    slots_ = 1;
    auto& given = given_[slot()];
    await_readers(given);
    auto& own = own_heads_[slot()];
    fill(own.payload);
    given = {position_ + 1, reader, kMostPlaces};
    channel_.post(own.flag, flag());
    // Both lines of the first pair, however short: as long to write as one where a reader has fetched the pair.
    prefetch_for_write(head_ahead(own_heads_), std::max(kLinePair, sizeof(Head::flag) + bytes));
  }
  // What get() does, for who waits for several givers. All is valid until pass().
  /// What is given at once.
  [[nodiscard, gnu::hot]] std::byte const* get_whole(int giver, std::size_t bytes);
  /// The same of a short content.
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
  /// Where what is given in steps lies.
  [[nodiscard, gnu::hot]] std::byte const* find(int giver, std::size_t bytes);
  /// Waits for more than `known` bytes of it; how many are there.
  [[nodiscard, gnu::hot]] std::size_t await(int giver, std::size_t bytes, std::size_t known);

  /// On to the next content; all ranks, each of which has filled or read this one.
  void pass() { advance_to(position_ + slots_); }

  /// Most that rides in a slot's first lines.
  static constexpr std::size_t kHeadBytes = 3 * kLinePair - sizeof(std::uint64_t);

 private:
  static constexpr std::size_t kAhead = 2;
  static constexpr std::size_t kPrefetched = 1024;
  /// A reader looks ahead once the giver has been ahead for so many contents: taking lines that are being filled costs
  /// both.
  static constexpr std::size_t kStreak = 8;

  /// The first line of a slot; small payloads ride in it.
  struct alignas(kLinePair) Head {
    std::atomic<std::uint64_t> flag;  ///< low 32 bits of (position + 1) << 32 | fingerprint of the calls so far
    std::byte payload[kHeadBytes];
    /// A processor fetches on where lines are read one after another: not those of the next slot, which the giver
    /// fills.
    std::byte gap[6 * kLinePair];
  };
  struct alignas(kLinePair) Progress {
    /// Low 32 bits of the slots this rank has left behind, a multiple of kPublished, << 32 | fingerprint of the calls
    /// it had made then.
    std::atomic<std::uint64_t> passed;
  };
  static_assert(sizeof(Head) == 9 * kLinePair);
  /// Of a content that is given in steps, in place of the head. Words of contents 2^32 positions ago look like today's;
  /// the fingerprint would not.
  struct alignas(kLinePair) Steps {
    std::atomic<std::uint64_t> flag;   ///< as Head's
    std::atomic<std::uint64_t> ready;  ///< low 32 bits of (position + 1) << 32 | bytes that are there
  };
  static constexpr std::size_t kPublished = kLeastPlaces / 4;

  /// What this rank gave last in a slot.
  struct Given {
    std::uint64_t passed_by = 0;  ///< readers that have passed so many slots are done with it
    int reader = kEverybody;
    std::size_t places = kMostPlaces;  ///< among which it lies
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
  /// Where to put `bytes`, once readers have left the place.
  [[nodiscard, gnu::hot]] std::byte* open(std::size_t bytes);
  /// So many bytes are there.
  void tell(std::size_t ready) noexcept;
  void note_given(int reader) noexcept;
  /// All are there, after one step or two.
  [[gnu::hot]] void close_whole(int reader, std::size_t bytes);
  [[gnu::hot]] void close_steps(int reader, std::size_t bytes);
  /// Where `rank` puts the `bytes` given at `position`.
  [[nodiscard]] std::byte* place(int rank, std::uint64_t position, std::size_t bytes) const noexcept;
  /// Prefetches what `rank` gives kAhead contents from here, if those contents are like these, whose first lines are
  /// among `firsts`.
  template <typename First, typename Prefetch>
  void look_ahead(int rank, std::size_t bytes, First const* firsts, Prefetch prefetch) const noexcept;
  [[nodiscard]] std::size_t slot() const noexcept { return position_ % kSlots; }
  [[nodiscard]] std::uint64_t flag() const noexcept { return (position_ + 1) << 32U | channel_.fingerprint(); }
  [[nodiscard]] std::byte const* head_ahead(Head const* heads) const noexcept {
    return reinterpret_cast<std::byte const*>(&heads[(position_ + kAhead) % kSlots]);
  }
  /// The next content is of `bytes`: skips slots until it finds its place.
  void take_slots(std::size_t bytes);
  /// Comes to every multiple of kPublished, as all steps are aligned.
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
