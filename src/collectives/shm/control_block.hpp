#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"
#include "core/cache_line.hpp"

namespace weft::shm {

inline constexpr int kMaxRanks = 64;
inline constexpr std::size_t kInlineBytes = 56;  ///< payload that rides in an announcement

/// A rank's announcement of one call: sequence and contract in one word, and a payload that came with it, in one cache
/// line. Two alternate: a rank overwrites the line of announcement k at announcement k+2, which it reaches only after
/// every rank has made announcement k+1 and so has finished with the call of k. Two ranks swap one line each instead,
/// see Channel. Calls that go through Feeds announce nothing.
struct alignas(kLinePair) Announcement {
  std::byte payload[kInlineBytes];
  std::atomic<std::uint64_t> flag;  ///< low 32 bits of the announcements so far << 32 | fingerprint of the calls so far
};

/// Claims of a call's chunks by whichever rank is running: sequence << 32 | count.
struct alignas(kLine) ClaimCounter {
  std::atomic<std::uint64_t> next;
  alignas(kLine) std::atomic<std::uint64_t> done;
};

/// What a rank's last announcements were of, by parity: read only to explain a mismatch.
struct Announced {
  PackedContract contract;
  std::uint64_t sequence = 0;
  std::uint64_t before = 0;  ///< fingerprint of the calls before this one
};

/// Calls that a rank has begun, for messages; entry = sequence % kRemembered. More than a rank that only gives can be
/// ahead (Feeds::kSlots), so that what it should have given is still known.
struct Remembered {
  std::atomic<std::uint64_t> sequence;  ///< 0 while it is written
  std::atomic<std::uint64_t> count;     ///< the words of a PackedContract
  std::atomic<std::uint64_t> rest;
};
inline constexpr std::size_t kRemembered = 256;

enum class Presence : std::uint32_t { present, departed };

/// One rank's lines. Written by that rank, read by all.
struct RankLines {
  Announcement announcements[2];
  alignas(kLinePair) Announced announced[2];
  alignas(kLinePair) std::atomic<std::uint64_t> meeting;  ///< meetings this rank has come to, over all calls
  alignas(kLinePair) std::atomic<std::uint64_t> report;   ///< reports to a root, over all calls
  alignas(
      kLinePair) std::atomic<std::uint32_t> doorbell;  ///< futex word, rung after a publication when somebody sleeps
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> presence;  ///< Presence
  std::atomic<std::uint32_t> core;      ///< that its last call began on, counted from 1; 0: not told
  std::int64_t pid;
  alignas(kLinePair) std::atomic<std::uint64_t> calls;  ///< calls begun, for messages
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
