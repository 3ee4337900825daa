#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "collectives/shm/selector.hpp"

namespace weft::shm {

inline constexpr double kLeastGain = 0.1;

/// A time per call (α) and a time per byte (β), bytes as Rules counts them.
struct Line {
  double fixed_ns = 0;
  double ns_per_byte = 0;

  [[nodiscard]] double at(std::size_t bytes) const noexcept {
    return fixed_ns + ns_per_byte * static_cast<double>(bytes);
  }
};

/// What the loop around a call of `call_ns` is believed to pay for it, given the measured `loop_ns`. That is a
/// difference of two times, so less than half of the call is taken for noise: no rank gains more than that by running
/// ahead of its peer, or from what it finds in its cache.
[[nodiscard]] constexpr double credible_loop(double loop_ns, double call_ns) noexcept {
  return std::max(loop_ns, call_ns / 2);
}

/// What an algorithm costs.
struct Cost {
  Line call;  ///< the call alone
  Line loop;  ///< what the loop around it pays: an algorithm that reads live buffers leaves work to their next owner

  [[nodiscard]] double loop_at(std::size_t bytes) const noexcept {
    return credible_loop(loop.at(bytes), call.at(bytes));
  }
  [[nodiscard]] bool is_known() const noexcept { return loop.fixed_ns > 0 || loop.ns_per_byte > 0; }
};

/// One observation of an algorithm.
struct Sample {
  std::size_t bytes = 0;
  double ns = 0;
};

/// The line that is nearest to `samples` relative to their sizes; neither part is negative.
[[nodiscard]] Line fit(std::vector<Sample> const& samples);

/// Whether the first algorithm is clearly faster than the other: by kLeastGain in the geometric mean of call and loop.
/// Both count, because often one gains where the other loses: lines that a peer has written or read cost their owner
/// more afterwards, the more the further away the peer is.
[[nodiscard]] constexpr bool pays(Sample const& call, Sample const& loop, Sample const& other_call,
                                  Sample const& other_loop) noexcept {
  return call.ns * credible_loop(loop.ns, call.ns) <
         (1 - kLeastGain) * (1 - kLeastGain) * other_call.ns * credible_loop(other_loop.ns, other_call.ns);
}

/// Where a call's data lies, as far as costs depend on it.
enum class Place : std::uint8_t {
  symmetric,
  in_place,        ///< in symmetric memory, receiving where it sends: all_reduce only
  symmetric_long,  ///< longer than limits are moved to, and as a whole in the caches
  private_long,    ///< in private memory, and as a whole in the caches
};
[[nodiscard]] constexpr bool is_symmetric(Place place) noexcept {
  return place == Place::symmetric || place == Place::in_place || place == Place::symmetric_long;
}
/// The size that stands for all of symmetric_long.
inline constexpr std::size_t kLongBytes = std::size_t{1} << 20;
/// The size that stands for all of private_long, which begins above half of it.
inline constexpr std::size_t kPrivateBytes = std::size_t{2} << 20;
/// The collective whose costs in private_long are used for `collective`. Where one rank only gives, or only gets, the
/// copies are the same and take about as long (docs/decisions/0003), and there is time to measure one of them well.
[[nodiscard]] constexpr Collective stand_in(Collective collective) noexcept {
  auto const is_rooted = collective == Collective::broadcast || collective == Collective::scatter;
  return is_rooted ? Collective::gather : collective;
}
inline constexpr std::size_t kPlaces = 4;

/// What the algorithms cost on one machine, for one number of ranks. Plain bytes, because ranks tell it one another.
struct CostModel {
  double synchronisation_ns = 0;    ///< for all ranks to come together; 0 when nothing was measured
  bool polls_at_once = false;       ///< see Tuning
  std::size_t streaming_bytes = 0;  ///< see Tuning; 0 when not measured
  std::size_t take_bytes = 0;       ///< see Tuning
  std::array<std::array<std::array<Cost, kAlgorithms>, kCollectives>, kPlaces> costs{};

  [[nodiscard]] bool is_measured() const noexcept { return synchronisation_ns > 0; }
  [[nodiscard]] Cost& of(Collective collective, Algorithm algorithm, Place place = Place::symmetric) noexcept {
    return costs[static_cast<std::size_t>(place)][static_cast<std::size_t>(collective)]
                [static_cast<std::size_t>(algorithm)];
  }
  [[nodiscard]] Cost const& of(Collective collective, Algorithm algorithm,
                               Place place = Place::symmetric) const noexcept {
    return costs[static_cast<std::size_t>(place)][static_cast<std::size_t>(collective)]
                [static_cast<std::size_t>(algorithm)];
  }
};

/// Text that says why a call of `bytes` in `memory` is run as it is: "predicted for 64 KiB as call / with its effects:
/// swapped 5.1 / 5.9 us, …" with the algorithms that this memory admits, or that nothing was measured.
[[nodiscard]] std::string describe(CostModel const& model, Collective collective, std::size_t bytes,
                                   Memory memory = Memory::any);

/// `derived` with its limits moved to where the model says that the next algorithm becomes the faster one.
///
/// A limit moves by powers of two, at most kMostUp of them up or kMostDown down, and only over sizes at which the other
/// algorithm gains kLeastGain in the geometric mean of call and loop: measurements of a few milliseconds are noisy, and
/// what follows from the caches is seldom far off. It moves down only over sizes that were measured: a fitted line says
/// little about shorter calls, because reading in a peer's buffer has a least cost. Where long calls in symmetric
/// memory were measured, they are staged, or fed, as far as the caches reach if that wins by the same rule. Private
/// memory is fetched that far if that wins, which depends on the kernel and on the size of its pages. Two levels, which
/// derive() never chooses, replace one where they win without making a call slower. `largest_block`: what staging rings
/// can take at once.
[[nodiscard]] Selector tune(Selector const& derived, CostModel const& model, std::size_t largest_block);
inline constexpr int kMostUp = 2;
inline constexpr int kMostDown = 1;

}  // namespace weft::shm
