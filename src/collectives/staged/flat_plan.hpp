#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/staged/plan.hpp"
#include "weft/communicator.hpp"

namespace weft::staged {

/// All of a collective through host memory, by the same collective there.
///
/// A call's buffers are pieces: the whole of them, or one for every rank. Step k has bytes [k·width, (k+1)·width) of
/// each piece, as far as it has them, side by side in the slot. Width is the same on all ranks, so the steps of pieces
/// that belong together meet.
class FlatPlan final : public Plan {
 public:
  /// `host`: all ranks. `region_bytes`: of either half of a slot, at least ranks · 256.
  FlatPlan(Call with, Communicator& host, std::size_t region_bytes);

  [[nodiscard]] std::size_t steps() const noexcept override { return steps_; }
  [[nodiscard]] Copies copies_out(std::size_t step, Slot const& slot) const override;
  [[nodiscard]] Copies copies_in(std::size_t step, Slot const& slot) const override;
  void exchange(std::size_t step, Slot const& slot) const override;
  [[nodiscard]] std::string way() const override { return "through pinned host memory"; }

 private:
  using Pieces = std::vector<ByteRange>;
  /// Elements of each piece's part of a step.
  using Counts = std::vector<std::size_t>;

  [[nodiscard]] bool is_root() const noexcept { return call().is_root(rank_); }
  [[nodiscard]] Pieces whole() const { return {{0, call().bytes()}}; }
  [[nodiscard]] Pieces own(Parts const& parts) const;
  [[nodiscard]] Pieces parts_of(Parts const& parts) const;
  void divide();
  [[nodiscard]] std::size_t length(ByteRange const& piece, std::size_t step) const noexcept;
  [[nodiscard]] Counts counts(Pieces const& pieces, std::size_t step) const;
  [[nodiscard]] std::byte* given_at(Slot const& slot) const noexcept;

  Communicator& host_;
  int const rank_;
  int const size_;
  Pieces sends_;  // of call().send: what this rank gives
  Pieces recvs_;  // of call().recv: what it gets
  std::size_t width_ = 0;
  std::size_t steps_ = 1;
};

}  // namespace weft::staged
