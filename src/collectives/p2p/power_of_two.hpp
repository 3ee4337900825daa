#pragma once

#include <bit>

#include "collectives/p2p/context.hpp"

namespace weft::p2p {

/// For algorithms that need a power of two of ranks, p. Of n = p + extra ranks, the first 2·extra form pairs of
/// neighbours, in which the even rank acts for both. This leaves p ranks that act, in the order of ranks.
class PowerOfTwo {
 public:
  explicit PowerOfTwo(Context const& context) noexcept
      : rank_(context.rank()),
        actors_(static_cast<int>(std::bit_floor(static_cast<unsigned>(context.size())))),
        extra_(context.size() - actors_) {}

  [[nodiscard]] int actors() const noexcept { return actors_; }  ///< p
  [[nodiscard]] bool is_paired() const noexcept { return rank_ < 2 * extra_; }
  /// Whether the partner acts for this rank.
  [[nodiscard]] bool sits_out() const noexcept { return is_paired() && rank_ % 2 == 1; }
  [[nodiscard]] int partner() const noexcept { return rank_ ^ 1; }
  /// This rank's number among those that act.
  [[nodiscard]] int actor() const noexcept { return is_paired() ? rank_ / 2 : rank_ - extra_; }
  /// The rank of an actor; for `actors()`, the number of ranks. An actor acts for the ranks from its own up to the next
  /// actor's.
  [[nodiscard]] int rank_of(int actor) const noexcept { return actor < extra_ ? 2 * actor : actor + extra_; }

 private:
  int rank_;
  int actors_;
  int extra_;
};

}  // namespace weft::p2p
