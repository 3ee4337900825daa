#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/call.hpp"
#include "core/cache_line.hpp"

namespace weft {

[[nodiscard]] constexpr std::size_t round_up_to_lines(std::size_t bytes) noexcept {
  return (bytes + kLine - 1) / kLine * kLine;
}

/// One call's buffers within a merged call. A unit is what contracts count: the whole buffer, or one rank's part.
struct Piece {
  void const* send = nullptr;
  void* recv = nullptr;
  std::size_t bytes = 0;
  std::size_t offset = 0;    ///< of this unit in the merged call's unit, in bytes
  std::uint32_t number = 0;  ///< the call's number in its group, from 1; 0 outside of groups
};

/// Which of an operation's buffers hold a part for every rank; other buffers hold one unit.
struct Shape {
  bool send_parts = false;
  bool recv_parts = false;
};
[[nodiscard]] Shape shape_of(Operation operation) noexcept;

/// Consecutive calls of one kind that run as one. They are equal in all but buffers and counts, and independent of each
/// other; the caller ensures this. Their units lie one after the other, each from a cache line of its own, so that one
/// flat transfer moves them all. Which calls merge depends only on what is equal on all ranks.
class MergedCall {
 public:
  using Run = void (Backend::*)(Call const&);

  /// Begins with one call; `operation` would run it by itself.
  MergedCall(Call&& first, Run operation, MergeLimits const& limits, std::uint32_t number = 0);

  /// Whether calls like this one merge at all.
  [[nodiscard]] static bool merges(Call const& call) noexcept;
  /// Whether calls of `next`'s kind may join while there is room.
  [[nodiscard]] bool is_open_to(Call const& next) const noexcept;
  /// Whether `next` may join; if so, add() it.
  [[nodiscard]] bool accepts(Call const& next) const noexcept { return is_open_to(next) && has_room(next.bytes()); }
  void add(Call const& next, std::uint32_t number = 0);
  /// Whether there is room for one more call of this kind with a unit of `bytes`; if so, add() its buffers and count.
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept {
    return pieces_.size() < Contract::Group::kMostCalls && bytes <= limits_.each && bytes_ + bytes <= limits_.together;
  }
  void add(void const* send, void* recv, std::size_t count, std::uint32_t number) {
    auto const bytes = count * element_;
    auto const offset = round_up_to_lines(bytes_);
    pieces_.push_back({send, recv, bytes, offset, number});
    bytes_ = offset + bytes;
    elements_ += count;
    sizes_ = (sizes_ ^ bytes) * 0x9e3779b97f4a7c15U;
    sizes_ ^= sizes_ >> 29U;
  }
  /// Reserves memory for so many calls in all.
  void reserve(std::size_t calls) { pieces_.reserve(calls); }
  /// No more calls come: call() is now complete but for its sequence and timeout.
  void close() noexcept;

  [[nodiscard]] Call& call() noexcept { return call_; }
  [[nodiscard]] Call const& call() const noexcept { return call_; }
  [[nodiscard]] std::vector<Piece> const& pieces() const noexcept { return pieces_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }  ///< of the merged unit, gaps included
  [[nodiscard]] Shape shape() const noexcept { return shape_of(call_.contract.operation); }

  void run(Backend& backend) const;
  /// Runs `call`, which is of this kind, by itself.
  void run_plain(Backend& backend, Call const& call) const { (backend.*run_)(call); }

  /// Calls body(piece, from, place, bytes) for each piece that overlaps [first, first + length) of the merged unit:
  /// bytes [from, from + bytes) of the piece's unit lie `place` bytes from the beginning of that range.
  template <typename Body>
  void for_each(std::size_t first, std::size_t length, Body&& body) const;

 private:
  Call call_;
  Run run_;
  MergeLimits limits_;
  std::size_t element_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
  std::uint64_t elements_ = 0;
  /// A fingerprint of the pieces' sizes. Ranks compare its upper half, which is equal for different lists with a
  /// probability of 2^-32.
  std::uint64_t sizes_ = 0xcbf29ce484222325U;
};

template <typename Body>
void MergedCall::for_each(std::size_t first, std::size_t length, Body&& body) const {
  auto const end = first + length;
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), first,
                                [](std::size_t at, Piece const& p) { return at < p.offset; });
  if (piece != pieces_.begin()) --piece;
  for (; piece != pieces_.end() && piece->offset < end; ++piece) {
    auto const from = std::max(first, piece->offset);
    auto const to = std::min(end, piece->offset + piece->bytes);
    if (from < to) body(*piece, from - piece->offset, from - first, to - from);
  }
}

/// Runs a merged call as one plain call: copies its buffers into contiguous ones in `scratch`, calls `run` with those,
/// and copies the results back.
void run_flat(Backend& backend, MergedCall const& merged, int rank, int size, std::vector<std::byte>& scratch,
              std::function<void(Call const&)> const& run);

}  // namespace weft
