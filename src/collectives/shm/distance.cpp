#include "collectives/shm/distance.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>

#include "core/cache_line.hpp"

namespace weft::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBatches = 5;
constexpr std::uint32_t kTrips = 20;  // of a batch
/// How long to wait for a rank to arrive: ranks come from their bootstrap one after the other, and some sleep between
/// two looks at it.
constexpr std::chrono::milliseconds kUntilThere{20};
/// A rank that is there and does not answer for this long is not running.
constexpr std::chrono::milliseconds kPatience{2};
constexpr std::uint32_t kNoMore = std::numeric_limits<std::uint32_t>::max();

/// A rank's two words: rank 0 writes one, and the rank answers with the same in the other.
struct Words {
  alignas(kLinePair) std::atomic<std::uint32_t> asked;
  alignas(kLinePair) std::atomic<std::uint32_t> answered;
};

/// Polls until `ready`; false when that takes longer than `patience`.
template <typename Ready>
bool poll(std::chrono::milliseconds patience, Ready ready) {
  constexpr int kPollsPerLook = 1000;
  auto const deadline = Clock::now() + patience;
  do {
    for (int i = 0; i < kPollsPerLook; ++i) {
      if (ready()) return true;
    }
  } while (Clock::now() < deadline);
  return false;
}

/// Nanoseconds there and back, of the best batch.
std::optional<double> time_trips(Words& words) {
  auto best = std::numeric_limits<double>::max();
  std::uint32_t trip = 0;
  for (std::uint32_t batch = 0; batch <= kBatches; ++batch) {  // the first lasts until both are there
    auto const start = Clock::now();
    for (std::uint32_t i = 0; i < kTrips; ++i) {
      words.asked.store(++trip, std::memory_order_release);
      if (!poll(trip == 1 ? kUntilThere : kPatience,
                [&] { return words.answered.load(std::memory_order_acquire) == trip; }))
        return std::nullopt;
    }
    std::chrono::duration<double, std::nano> const took = Clock::now() - start;
    if (batch > 0) best = std::min(best, took.count() / kTrips);
  }
  return best;
}

/// Answers until rank 0 asks no more.
void answer(Words& words, std::chrono::milliseconds patience) {
  std::uint32_t seen = 0;
  while (seen != kNoMore) {
    if (!poll(patience, [&] { return words.asked.load(std::memory_order_acquire) != seen; })) return;
    seen = words.asked.load(std::memory_order_acquire);
    words.answered.store(seen, std::memory_order_release);
  }
}

}  // namespace

std::size_t distance_bytes() noexcept {
  return sizeof(Words);
}

std::size_t distance_class(double ns) noexcept {
  std::size_t result = 64;
  while (static_cast<double>(result) < ns) result *= 4;
  return result;
}

std::size_t measure_distance(int rank, int size, Exchange const& exchange) {
  auto const segment =
      create_segment(rank, size, static_cast<std::size_t>(size) * distance_bytes(), distance_bytes(), exchange);
  auto* const words = std::launder(reinterpret_cast<Words*>(segment->data()));
  if (rank != 0) {
    answer(words[rank], kUntilThere + size * kPatience);
    return 0;
  }
  std::optional<double> furthest = 0;
  for (int peer = 1; peer < size; ++peer) {
    auto const one = furthest ? time_trips(words[peer]) : std::nullopt;
    furthest = one ? std::optional(std::max(*furthest, *one)) : std::nullopt;
    words[peer].asked.store(kNoMore, std::memory_order_release);
  }
  return furthest ? distance_class(*furthest) : 0;
}

}  // namespace weft::shm
