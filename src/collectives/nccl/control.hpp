#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "collectives/call.hpp"
#include "collectives/nccl/failure_board.hpp"
#include "collectives/nccl/ledger.hpp"
#include "collectives/shm/control_block.hpp"
#include "collectives/shm/segment.hpp"
#include "core/cache_line.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft::nccl {

/// What one rank tells the others about its calls on the GPU. It lies in host memory that all ranks map: each rank
/// writes its own lines only, and never waits for another. Zero-filled memory is the initial state.
struct ControlLines {
  static constexpr std::size_t kRemembered = 1024;

  struct Entry {
    std::atomic<std::uint64_t> sequence;  ///< 0 while the entry is being written
    std::atomic<std::uint64_t> count;     ///< this and `rest`: the words of a PackedContract
    std::atomic<std::uint64_t> rest;
  };

  alignas(kLinePair) std::atomic<std::uint64_t> issued;  ///< number of collectives called so far
  alignas(kLinePair) std::atomic<std::uint64_t> done;    ///< how many of them the GPU has finished
  Entry entries[kRemembered];
};

/// The control channel of one communicator's ranks, all of which are on one host. publish() and note_done() are each
/// called by one thread only; any thread may call the rest.
class Control {
 public:
  /// Collective. @throws Error{unsupported} for ranks of several hosts.
  static std::unique_ptr<Control> create(Bootstrap& bootstrap, Config const& config);

  Control(std::shared_ptr<shm::Mapping> mapping, int rank, int size) noexcept
      : mapping_(std::move(mapping)),
        rank_(rank),
        size_(size),
        board_(mapping_),
        ledger_(mapping_->data() + kHeader + static_cast<std::size_t>(size) * sizeof(ControlLines), rank, size) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Tells the other ranks that this one makes call number `sequence`.
  void publish(std::uint64_t sequence, Contract const& contract) noexcept {
    auto& lines = lines_of(rank_);
    auto& entry = lines.entries[sequence % ControlLines::kRemembered];
    PackedContract const packed(contract);
    entry.sequence.store(0, std::memory_order_relaxed);
    entry.count.store(packed.count, std::memory_order_release);
    entry.rest.store(packed.rest, std::memory_order_release);
    entry.sequence.store(sequence, std::memory_order_release);
    lines.issued.store(sequence, std::memory_order_release);
    prefetch_for_write(&lines.entries[(sequence + 1) % ControlLines::kRemembered]);  // the ranks have read it
  }
  void note_done(std::uint64_t sequence) noexcept { lines_of(rank_).done.store(sequence, std::memory_order_release); }

  [[nodiscard]] std::uint64_t issued(int rank) const noexcept { return lines_of(rank).issued.load(); }
  [[nodiscard]] std::uint64_t done(int rank) const noexcept { return lines_of(rank).done.load(); }
  /// The contract of `rank`'s call number `sequence`; empty when its entry has been overwritten since.
  [[nodiscard]] std::optional<Contract> recall(int rank, std::uint64_t sequence) const noexcept;

  /// The pieces that ranks give one another.
  [[nodiscard]] Ledger& ledger() noexcept { return ledger_; }

  /// Records a failure for all ranks; false if one was recorded before.
  bool fail(ErrorCode code, std::string const& message) noexcept { return board_.fail(code, message); }
  [[nodiscard]] std::optional<Error> failure() const { return board_.failure(); }
  /// Whether failure() has a value.
  [[nodiscard]] bool has_failed() const noexcept { return board_.has_failed(); }
  /// Where failures are recorded; a copy may outlive this object.
  [[nodiscard]] FailureBoard const& board() const noexcept { return board_; }

 private:
  /// The mapping holds the failure first, then each rank's lines.
  static constexpr std::size_t kHeader =
      (sizeof(shm::FailureRecord) + alignof(ControlLines) - 1) / alignof(ControlLines) * alignof(ControlLines);
  [[nodiscard]] ControlLines& lines_of(int rank) const noexcept {
    return reinterpret_cast<ControlLines*>(mapping_->data() + kHeader)[rank];
  }

  std::shared_ptr<shm::Mapping> mapping_;
  int rank_;
  int size_;
  FailureBoard board_;
  Ledger ledger_;
};

}  // namespace weft::nccl
