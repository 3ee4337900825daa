#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/call.hpp"
#include "collectives/message.hpp"
#include "core/cache_line.hpp"

namespace weft::nccl {

/// What one rank gives another, or expects from it: a message, or one part of a call with unequal parts whose sizes
/// only these two ranks need to know.
struct Piece {
  Operation operation = Operation::send;  ///< for messages `send` on either side
  DataType dtype = DataType::u8;
  std::uint64_t count = 0;

  friend bool operator==(Piece const&, Piece const&) = default;
};

/// What every rank gives and expects, in memory that all ranks map, so that both sides can be compared: the nth piece
/// that rank A gives rank B must be the nth piece that B expects from A. Zero-filled memory is the initial state. One
/// thread calls publish(); any thread may call the rest.
class Ledger {
 public:
  enum class Side : std::uint8_t { given, expected };
  static constexpr std::size_t kRemembered = 64;

  [[nodiscard]] static constexpr std::size_t bytes(int size) noexcept {
    return static_cast<std::size_t>(size) * static_cast<std::size_t>(size) * 2 * sizeof(Lines);
  }
  Ledger(std::byte* memory, int rank, int size) noexcept
      : lines_(reinterpret_cast<Lines*>(memory)), rank_(rank), size_(size) {}

  /// Records that this rank gives `peer` the piece, or expects it from `peer`. Returns its number, from 1.
  std::uint64_t publish(Side side, int peer, Piece const& piece) noexcept;

  /// How many pieces `rank` has given to `peer`, or expected from it.
  [[nodiscard]] std::uint64_t count(Side side, int rank, int peer) const noexcept {
    return of(side, rank, peer).count.load(std::memory_order_acquire);
  }
  /// Piece `number`; empty when its entry has been overwritten since.
  [[nodiscard]] std::optional<Piece> recall(Side side, int rank, int peer, std::uint64_t number) const noexcept;

 private:
  struct Entry {
    std::atomic<std::uint64_t> what;  ///< number << 32 | operation << 8 | type; 0 while the entry is being written
    std::atomic<std::uint64_t> count;
  };
  struct alignas(kLinePair) Lines {
    std::atomic<std::uint64_t> count;
    Entry entries[kRemembered];
  };
  [[nodiscard]] Lines& of(Side side, int rank, int peer) const noexcept {
    auto const pair = static_cast<std::size_t>(rank) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(peer);
    return lines_[2 * pair + static_cast<std::size_t>(side)];
  }

  Lines* lines_;
  int rank_;
  int size_;
};

/// Records what `rank` of `size` gives and expects in a call with unequal parts. Does nothing for other calls: their
/// contracts say it all.
void publish(Ledger& ledger, Call const& call, int rank, int size) noexcept;
/// Records what `rank` sends or receives. A message to itself concerns no other rank and is not recorded.
void publish(Ledger& ledger, Message const& message, int rank) noexcept;

/// "send(5 × f32)", "gather_v(0 × u8)"
[[nodiscard]] std::string describe(Piece const& piece, Ledger::Side side);

}  // namespace weft::nccl
