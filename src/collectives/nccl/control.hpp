#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "collectives/call.hpp"
#include "collectives/nccl/ledger.hpp"
#include "collectives/shm/control_block.hpp"
#include "collectives/shm/segment.hpp"
#include "core/cache_line.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft::nccl {

/// What ranks tell one another of their calls on the GPU, in host memory that all of them map: each its own lines,
/// without waiting for anybody. Zero-filled memory is its initial state.
struct ControlLines {
  static constexpr std::size_t kRemembered = 1024;

  struct Entry {
    std::atomic<std::uint64_t> sequence;  ///< 0 while it is written
    std::atomic<std::uint64_t> count;     ///< the words of a PackedContract
    std::atomic<std::uint64_t> rest;
  };

  alignas(kLinePair) std::atomic<std::uint64_t> issued;  ///< collectives so far
  alignas(kLinePair) std::atomic<std::uint64_t> done;    ///< of them those that the GPU is through with
  Entry entries[kRemembered];
};

/// The control channel of one communicator's ranks, which are on one host. publish() and note_done() are for one thread
/// each, the rest for any.
class Control {
 public:
  /// Collective. @throws Error{unsupported} for ranks of several hosts.
  static std::unique_ptr<Control> create(Bootstrap& bootstrap, Config const& config);

  Control(std::shared_ptr<shm::Mapping> mapping, int rank, int size) noexcept
      : mapping_(std::move(mapping)),
        rank_(rank),
        size_(size),
        ledger_(mapping_->data() + kHeader + static_cast<std::size_t>(size) * sizeof(ControlLines), rank, size) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Tells the ranks that this one makes call number `sequence`.
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
  /// What `rank` made as that call; empty when it is too long ago.
  [[nodiscard]] std::optional<Contract> recall(int rank, std::uint64_t sequence) const noexcept;

  /// What goes from rank to rank.
  [[nodiscard]] Ledger& ledger() noexcept { return ledger_; }

  /// Decides a failure for all ranks; false where another one was decided before.
  bool fail(ErrorCode code, std::string const& message) noexcept;
  [[nodiscard]] std::optional<Error> failure() const;
  /// Whether failure() is one.
  [[nodiscard]] bool has_failed() const noexcept {
    return record().state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(shm::FailureState::set);
  }

 private:
  /// The failure, then each rank's lines.
  static constexpr std::size_t kHeader =
      (sizeof(shm::FailureRecord) + alignof(ControlLines) - 1) / alignof(ControlLines) * alignof(ControlLines);
  [[nodiscard]] shm::FailureRecord& record() const noexcept {
    return *reinterpret_cast<shm::FailureRecord*>(mapping_->data());
  }
  [[nodiscard]] ControlLines& lines_of(int rank) const noexcept {
    return reinterpret_cast<ControlLines*>(mapping_->data() + kHeader)[rank];
  }

  std::shared_ptr<shm::Mapping> mapping_;
  int rank_;
  int size_;
  Ledger ledger_;
};

}  // namespace weft::nccl
