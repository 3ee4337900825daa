#pragma once

#include <chrono>
#include <cstddef>
#include <limits>

#include "kernels/cpu/reduce.hpp"

namespace weft::shm {

/// Decides whether what a rank gives is stored past its caches. Lines that a reader has taken must come back before
/// they are written again. Within one cache that is quick; between caches or chips it can take several times as long as
/// writing them to memory, where the reader finds them sooner than in the giver's cache (docs/decisions/0003). How far
/// apart ranks lie changes from one second to the next on virtual machines, so it is not a setting: a rank watches how
/// long it takes to give, and tries the other way where that is long.
///
/// One thread at a time.
class StoreChoice {
 public:
  /// The least content that may go past the caches; shorter ones would wait longer for memory than for the lines.
  static constexpr std::size_t kLeastBytes = 4096;

  /// Calls fill(store), which writes a content of `bytes`, or so much of one of `whole` bytes. Another rank may read it
  /// afterwards.
  template <typename Fill>
  void fill(std::size_t bytes, Fill const& fill) {
    this->fill(bytes, bytes, fill);
  }
  template <typename Fill>
  void fill(std::size_t bytes, std::size_t whole, Fill const& fill) {
    if (whole < kLeastBytes) return fill(kernels::Store::cached);
    auto const store = of(whole);
    auto const timed = is_timed(whole);
    auto const begin = timed ? Clock::now() : Clock::time_point();
    fill(store);
    if (kernels::is_past_caches(store)) kernels::fence();
    if (timed) took(bytes, std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }

  // The parts of fill().
  /// How to store contents of `bytes`. Where that is unfenced, call fence() before a reader is told.
  [[nodiscard]] kernels::Store of(std::size_t bytes) const noexcept {
    return streams(bytes) ? kernels::Store::unfenced : kernels::Store::cached;
  }
  [[nodiscard]] bool streams(std::size_t bytes) const noexcept { return streams_ && bytes >= kLeastBytes; }

  /// Whether the next content, of `bytes`, is to be timed. Of contents so short that a clock would hold them up
  /// noticeably, one in kShortOnes is.
  [[nodiscard]] bool is_timed(std::size_t bytes) noexcept {
    if (bytes < kLeastBytes) return false;
    return bytes >= kLongBytes || ++short_ones_ % kShortOnes == 0;
  }

  /// Tells that the content, stored as of() said, took `ns` nanoseconds.
  void took(std::size_t bytes, double ns) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kLongBytes = std::size_t{64} << 10;
  static constexpr unsigned kShortOnes = 4;
  /// Nanoseconds per byte above which lines come from another cache: from there it takes 0.2 and more, within one 0.05.
  static constexpr double kDear = 0.12;
  static constexpr double kLeastGain = 1.4;
  /// Contents of a round, the fastest of which counts: others may have been interrupted.
  static constexpr int kRound = 4;
  static constexpr int kMostRounds = 64;
  static constexpr int kMostPause = 1024;
  /// Contents are alike if neither is more than this many times as large as the other. Rates of others say nothing of
  /// one another.
  static constexpr std::size_t kAlike = 4;
  static constexpr int kMostUnlike = 16;
  static constexpr double kUnknown = std::numeric_limits<double>::max();

  [[nodiscard]] bool is_alike(std::size_t bytes) const noexcept {
    return bytes <= kAlike * size_ && size_ <= kAlike * bytes;
  }
  void begin_round(bool streams) noexcept;
  void end_round() noexcept;

  bool streams_ = false;
  bool looks_back_ = false;   ///< after rounds that were streamed: whether the caches have come closer
  double cached_ = kUnknown;  ///< nanoseconds per byte of the last round through the caches
  double best_ = kUnknown;    ///< of this round
  std::size_t size_ = 0;      ///< of the contents that rounds are about
  int unlike_ = 0;            ///< contents in a row of another size
  int timed_ = 0;             ///< contents of this round
  int rounds_ = 0;            ///< streamed since the last look back
  int look_after_ = 1;        ///< after so many of them; doubles with each look that changes nothing
  int pause_ = 0;             ///< dear rounds that go by before streaming is tried again
  int next_pause_ = 1;        ///< doubles with each try that gains nothing
  unsigned short_ones_ = 0;
};

}  // namespace weft::shm
