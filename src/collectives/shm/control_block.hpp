#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"
#include "collectives/shm/cache_line.hpp"

namespace weft::shm {

inline constexpr int kMaxRanks = 64;
inline constexpr std::size_t kInlineBytes = 56;  ///< payload that rides in an announcement

/// A rank's announcement of one call: sequence and contract in one word, and a payload that came with it, in one cache
/// line. Two alternate: a rank overwrites the line of call k at call k+2, which it reaches only after every rank has
/// announced call k+1 and so has finished with call k. Two ranks swap one line each instead, see Channel.
struct alignas(kLinePair) Announcement {
  std::byte payload[kInlineBytes];
  std::atomic<std::uint64_t> flag;  ///< low 32 bits of the sequence number << 32 | contract hash
};

/// Claims of a call's chunks by whichever rank is running: sequence << 32 | count.
struct alignas(kLine) ClaimCounter {
  std::atomic<std::uint64_t> next;
  alignas(kLine) std::atomic<std::uint64_t> done;
};

enum class Presence : std::uint32_t { present, departed };

/// One rank's lines. Written by that rank, read by all.
struct RankLines {
  Announcement announcements[2];
  alignas(kLinePair) PackedContract contracts[2];         ///< read only to explain a mismatch
  alignas(kLinePair) std::atomic<std::uint64_t> meeting;  ///< meetings this rank has come to, over all calls
  alignas(
      kLinePair) std::atomic<std::uint32_t> doorbell;  ///< futex word, rung after a publication when somebody sleeps
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> presence;  ///< Presence
  std::atomic<std::uint64_t> calls;     ///< calls announced, for messages
  std::int64_t pid;
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
