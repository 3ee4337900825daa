#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call.hpp"
#include "weft/communicator.hpp"

namespace weft::staged {

/// `rows` rows of `width` bytes, whose starts are a pitch apart.
struct Copy {
  std::byte* to = nullptr;
  std::byte const* from = nullptr;
  std::size_t width = 0;
  std::size_t rows = 1;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
};
using Copies = std::vector<Copy>;

/// Where a step's bytes are on the host: what the rank gives, and what it gets.
struct Slot {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

/// One rank's part of a collective of device memory, divided into steps: of each, what goes from the device to the
/// host, the collective there, and what comes back.
///
/// A call's buffers are pieces: the whole of them, or one for every rank. Step k has bytes [k·width, (k+1)·width) of
/// each piece, as far as it has them, side by side in the slot. Width is the same on all ranks, so the steps of pieces
/// that belong together meet. In place is fine: what step k writes no later one reads.
class Plan {
 public:
  /// `region_bytes`: of either half of a slot, at least ranks · 256. `call` owns its parts.
  Plan(Call call, int rank, int size, std::size_t region_bytes);

  [[nodiscard]] Call const& call() const noexcept { return call_; }
  /// This rank's, at least 1. Where only some ranks know of parts, the ranks' differ: the others go on with empty ones.
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }

  /// From the device to the slot, before exchange().
  [[nodiscard]] Copies copies_out(std::size_t step, Slot const& slot) const;
  /// Back, after it.
  [[nodiscard]] Copies copies_in(std::size_t step, Slot const& slot) const;
  /// Collective over `host`, which has the same ranks. Returns when it is through. @throws Error
  void exchange(std::size_t step, Slot const& slot, Communicator& host) const;

 private:
  using Pieces = std::vector<ByteRange>;
  /// Elements of each piece's part of a step.
  using Counts = std::vector<std::size_t>;

  [[nodiscard]] bool is_root() const noexcept { return call_.is_root(rank_); }
  [[nodiscard]] Pieces whole() const { return {{0, call_.bytes()}}; }
  [[nodiscard]] Pieces own(Parts const& parts) const;
  [[nodiscard]] Pieces parts_of(Parts const& parts) const;
  void divide();
  [[nodiscard]] std::size_t length(ByteRange const& piece, std::size_t step) const noexcept;
  [[nodiscard]] Counts counts(Pieces const& pieces, std::size_t step) const;
  [[nodiscard]] std::byte* given_at(Slot const& slot) const noexcept;
  [[nodiscard]] Reduction reduction() const noexcept;

  Call const call_;
  int const rank_;
  int const size_;
  Pieces sends_;  // of call_.send: what this rank gives
  Pieces recvs_;  // of call_.recv: what it gets
  std::size_t width_ = 0;
  std::size_t steps_ = 1;
};

}  // namespace weft::staged
