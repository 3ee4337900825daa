#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"
#include "core/cache_line.hpp"

namespace weft::shm {

inline constexpr int kMaxRanks = 64;
inline constexpr std::size_t kInlineBytes = 56;  ///< payload that rides in an announcement

/// A rank's announcement of one call, in one cache line: a word with the announcement's number and the fingerprint of
/// all calls so far, and a payload. Two lines alternate: a rank overwrites the line of announcement k at announcement
/// k+2, which it reaches only after every rank has made announcement k+1 and so has finished with the call of k. Two
/// ranks swap one line each instead (see Channel). Calls that go through Feeds announce nothing.
struct alignas(kLinePair) Announcement {
  std::byte payload[kInlineBytes];
  std::atomic<std::uint64_t> flag;  ///< low 32 bits of the announcements so far << 32 | fingerprint of the calls so far
};

/// How many chunks of a call ranks have claimed (`next`) and finished (`done`); whichever rank is running claims the
/// next. Each word is the call's sequence << 32 | count.
struct alignas(kLine) ClaimCounter {
  std::atomic<std::uint64_t> next;
  alignas(kLine) std::atomic<std::uint64_t> done;
};

/// The call that an announcement was for. Kept for a rank's last two, by parity; read only to explain a mismatch.
struct Announced {
  PackedContract contract;
  std::uint64_t sequence = 0;
  std::uint64_t before = 0;  ///< fingerprint of the calls before this one
};

/// A call that a rank has begun, for error messages; its entry is sequence % kRemembered. There are more entries than
/// the calls by which a rank that only gives can be ahead (Feeds::kSlots), so what it should have given is still known.
struct Remembered {
  std::atomic<std::uint64_t> sequence;  ///< 0 while it is written
  std::atomic<std::uint64_t> count;     ///< the words of a PackedContract
  std::atomic<std::uint64_t> rest;
};
inline constexpr std::size_t kRemembered = 256;

enum class Presence : std::uint32_t { present, departed };

/// One rank's lines. Read by all and written by that rank, except that sleeping and waking ranks write `sleepers` and
/// `doorbell`, and that two ranks swap lines (see Channel).
struct RankLines {
  Announcement announcements[2];
  alignas(kLinePair) Announced announced[2];
  alignas(kLinePair) std::atomic<std::uint64_t> meeting;  ///< meetings this rank has come to, over all calls
  alignas(kLinePair) std::atomic<std::uint64_t> report;   ///< reports to a root, over all calls
  alignas(
      kLinePair) std::atomic<std::uint32_t> doorbell;  ///< futex word, rung after a publication when somebody sleeps
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> presence;   ///< Presence
  std::atomic<std::uint32_t> core;       ///< on which its last call began, counted from 1; 0: not told
  std::atomic<std::uint32_t> writes_to;  ///< the rank, from 1, whose private memory it is writing to; 0: nobody's
  std::atomic<std::uint64_t> waits_in;   ///< the call in which it waits, once it has slept; 0: none
  std::int64_t pid;
  alignas(kLinePair) std::atomic<std::uint64_t> calls;  ///< calls begun, also for error messages
  Remembered remembered[kRemembered];
};

enum class FailureState : std::uint32_t { none, writing, set };

/// The first failure any rank decided; all ranks report this one.
struct FailureRecord {
  std::atomic<std::uint32_t> state;
  std::uint32_t code;
  char message[440];
};

/// What a communicator's ranks share besides data. Zero-filled memory is its initial state.
struct ControlBlock {
  FailureRecord failure;
  ClaimCounter claims[2];
  RankLines ranks[kMaxRanks];
};

static_assert(sizeof(Announcement) == kLinePair);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace weft::shm
