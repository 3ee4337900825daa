#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/staged/plan.hpp"
#include "weft/communicator.hpp"

namespace weft::staged {

/// Does a whole collective through host memory, by the same collective there.
///
/// Each buffer of a call is divided into pieces: one piece that is the whole buffer, or one piece for every rank. Step
/// k handles bytes [k·width, (k+1)·width) of each piece, as far as the piece reaches; they lie side by side in the
/// slot. The width is the same on all ranks, so pieces that belong together are in the same step on all of them.
class FlatPlan final : public Plan {
 public:
  /// `host`: a communicator of all ranks. `region_bytes`: size of each half of a slot, at least ranks · 256.
  FlatPlan(Call with, Communicator& host, std::size_t region_bytes);

  [[nodiscard]] std::size_t steps() const noexcept override { return steps_; }
  [[nodiscard]] Copies copies_out(std::size_t step, Slot const& slot) const override;
  [[nodiscard]] Copies copies_in(std::size_t step, Slot const& slot) const override;
  void exchange(std::size_t step, Slot const& slot) const override;
  [[nodiscard]] std::string way() const override { return "through pinned host memory"; }

 private:
  using Pieces = std::vector<ByteRange>;
  /// Elements that a step has of each piece.
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
  Pieces sends_;  // what this rank gives, in call().send
  Pieces recvs_;  // what it gets, in call().recv
  std::size_t width_ = 0;
  std::size_t steps_ = 1;
};

}  // namespace weft::staged
