#include "collectives/shm/feeds.hpp"

#include <algorithm>
#include <new>

namespace weft::shm {
namespace {

static_assert(Feeds::kSlots < kRemembered, "who only gives is told what it should have given");

constexpr auto kForWrite = [](std::byte const* lines, std::size_t bytes) { prefetch_for_write(lines, bytes); };

}  // namespace

Feeds::Feeds(std::shared_ptr<Mapping> mapping, Channel& channel, std::size_t places,
             std::size_t places_to_root) noexcept
    : mapping_(std::move(mapping)),
      channel_(channel),
      places_(places),
      places_to_root_(places_to_root),
      own_heads_(heads(channel.rank())) {}

Feeds::Progress& Feeds::progress(int rank) const noexcept {
  return *std::launder(reinterpret_cast<Progress*>(base(rank)));
}

Feeds::Head& Feeds::head(int rank) const noexcept {
  return heads(rank)[slot()];
}

Feeds::Steps* Feeds::steps(int rank) const noexcept {
  return std::launder(reinterpret_cast<Steps*>(base(rank) + sizeof(Progress) + kSlots * sizeof(Head)));
}

std::size_t Feeds::first_step(std::size_t bytes, std::size_t grain) noexcept {
  return std::max(grain, (bytes / 2 + kLine - 1) / kLine * kLine / grain * grain);
}

std::byte* Feeds::place(int rank, std::uint64_t position, std::size_t bytes) const noexcept {
  if (bytes <= kHeadBytes) return heads(rank)[position % kSlots].payload;
  return base(rank) + sizeof(Progress) + kSlots * (sizeof(Head) + sizeof(Steps)) +
         (position & (in_use_ - 1)) * kPlaceBytes;
}

template <typename First, typename Prefetch>
void Feeds::look_ahead(int rank, std::size_t bytes, First const* firsts, Prefetch prefetch) const noexcept {
  auto const ahead = position_ + kAhead * slots_;
  prefetch(reinterpret_cast<std::byte const*>(&firsts[ahead % kSlots]), sizeof(First::flag));
  prefetch(place(rank, ahead, bytes), std::min(bytes, kPrefetched));
}

std::byte* Feeds::open(std::size_t bytes) {
  take_slots(bytes);
  for (std::size_t i = 0; i < slots_; ++i) {
    await_readers(given_[slot() + i]);
    // With the fewest places, two slots share one.
    auto const& other = given_[(slot() + i + kLeastPlaces) % kSlots];
    if (in_use_ == kLeastPlaces || other.places == kLeastPlaces) await_readers(other);
  }
  return place(channel_.rank(), position_, bytes);
}

void Feeds::wait_for_readers(Given const& given) {
  // No reader is so far behind, and their words could not tell, since they only count to 2^32.
  constexpr std::uint64_t kFar = std::uint64_t{1} << 30U;
  auto const long_ago = position_ - given.passed_by >= kFar;
  auto least = position_;
  for (int peer = 0; peer < channel_.size(); ++peer) {
    if (peer == channel_.rank()) continue;
    auto const& word = progress(peer).passed;
    auto const waits = !long_ago && (given.reader == kEverybody || given.reader == peer);
    auto const passed =
        waits ? channel_.await_count(peer, word, given.passed_by) : word.load(std::memory_order_acquire);
    auto const distance =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(passed >> 32U) - static_cast<std::uint32_t>(position_));
    if (distance <= 0 && distance > -static_cast<std::int32_t>(kSlots)) check_alike(peer, passed);
    least = std::min(least, position_ + static_cast<std::uint64_t>(std::min(distance, 0)));
  }
  all_passed_ = least;
}

/// Fails if `peer` made other calls: readers may have passed what they never read.
void Feeds::check_alike(int peer, std::uint64_t passed) {
  auto const ours = passed_[(passed >> 32U) / kPublished % passed_.size()];
  if (ours >> 32U == passed >> 32U && ours != passed) channel_.fail_for_difference(peer);
}

void Feeds::tell(std::size_t ready) noexcept {
  auto& lines = steps(channel_.rank())[slot()];
  lines.flag.store(flag(), std::memory_order_relaxed);  // relaxed: read only after `ready`, which is released
  channel_.post(lines.ready, (position_ + 1) << 32U | ready);
}

/// Notes it in every slot of the content, because the next content there may take only some of them.
void Feeds::note_given(int reader) noexcept {
  for (std::size_t i = 0; i < slots_; ++i) given_[slot() + i] = {position_ + 1, reader, in_use_};
}

void Feeds::close_whole(int reader, std::size_t bytes) {
  note_given(reader);
  channel_.post(head(channel_.rank()).flag, flag());
  if (!stores_.streams(bytes)) look_ahead(channel_.rank(), bytes, heads(channel_.rank()), kForWrite);
}

void Feeds::close_steps(int reader, std::size_t bytes) {
  note_given(reader);
  tell(bytes);
  if (!stores_.streams(bytes)) look_ahead(channel_.rank(), bytes, steps(channel_.rank()), kForWrite);
}

std::byte const* Feeds::find(int giver, std::size_t bytes) {
  take_slots(bytes);
  return place(giver, position_, bytes);
}

std::size_t Feeds::await(int giver, std::size_t bytes, std::size_t known) {
  take_slots(bytes);
  auto const& lines = steps(giver)[slot()];
  auto const content = (position_ + 1) << 32U;
  if (known == 0) {
    ready_ = lines.ready.load(std::memory_order_acquire) == (content | bytes) ? ready_ + 1 : 0;
    if (ready_ > kStreak) look_ahead(giver, bytes, steps(giver), prefetch_for_read);
  }
  auto const ready = channel_.await_more(giver, lines.ready, content | known);
  if (lines.flag.load(std::memory_order_relaxed) != flag()) channel_.fail_for_difference(giver);
  return std::min<std::size_t>(ready & 0xffffffffU, bytes);
}

std::byte const* Feeds::get_whole(int giver, std::size_t bytes) {
  take_slots(bytes);
  auto const expected = flag();
  auto const& word = head(giver).flag;
  ready_ = word.load(std::memory_order_acquire) == expected ? ready_ + 1 : 0;
  if (ready_ > kStreak) look_ahead(giver, bytes, heads(giver), prefetch_for_read);
  auto const found = channel_.await_tag(giver, word, expected);
  if (found != expected) channel_.fail_for_difference(giver);
  return place(giver, position_, bytes);
}

void Feeds::take_slots(std::size_t bytes) {
  slots_ = 1;
  if (bytes <= kPlaceBytes) return;
  slots_ = bytes <= 2 * kPlaceBytes ? 2 : kMostSlots;
  auto const aligned = (position_ + slots_ - 1) & ~std::uint64_t{slots_ - 1};
  if (aligned != position_) advance_to(aligned);
}

void Feeds::publish() {
  auto const passed = position_ << 32U | channel_.fingerprint();
  passed_[position_ / kPublished % passed_.size()] = passed;
  channel_.post(progress(channel_.rank()).passed, passed);
}

}  // namespace weft::shm
