#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "collectives/staged/plan.hpp"
#include "collectives/two_level/levels.hpp"

namespace weft::two_level {

/// The plan of a collective on a buffer that has a piece for every rank. Step k handles bytes [k·width, (k+1)·width) of
/// each piece, as far as the piece reaches. Each place handles the pieces of its ranks, one for each host.
class PiecePlan : public staged::Plan {
 public:
  /// `parts`: the pieces' sizes; empty: all pieces are equal.
  PiecePlan(Call call, Levels const& levels, Parts const& parts);

  [[nodiscard]] std::size_t steps() const noexcept override { return steps_; }
  [[nodiscard]] bool goes_inside() const noexcept override { return true; }

 protected:
  [[nodiscard]] Levels const& levels() const noexcept { return levels_; }
  [[nodiscard]] std::size_t element() const noexcept { return size_of(call().contract.dtype); }
  [[nodiscard]] std::size_t offset(std::size_t step) const noexcept { return step * width_; }
  /// The part of `rank`'s piece that a step handles, as a range of the whole buffer.
  [[nodiscard]] ByteRange range(std::size_t step, int rank) const noexcept;
  [[nodiscard]] ByteRange own(std::size_t step) const noexcept { return range(step, levels_.layout.rank()); }
  /// Bytes that a step handles for all ranks of this place.
  [[nodiscard]] std::size_t bytes_of_place(std::size_t step) const noexcept;
  [[nodiscard]] std::vector<std::size_t> counts_of_place(std::size_t step) const;
  /// A call about the pieces of a host's ranks, its buffers not set; empty if a step has nothing of these pieces.
  [[nodiscard]] std::optional<InnerCall> pieces_of(std::size_t host, std::size_t step, Operation equal,
                                                   Operation unequal) const;
  [[nodiscard]] CollectiveOptions how() const { return {.timeout = call().timeout}; }

 private:
  Levels const& levels_;
  std::vector<ByteRange> pieces_;  // by rank
  std::size_t width_;
  std::size_t steps_;
};

}  // namespace weft::two_level
