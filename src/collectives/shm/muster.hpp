#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/shm/cache_line.hpp"
#include "collectives/shm/channel.hpp"
#include "collectives/shm/control_block.hpp"
#include "collectives/survivors.hpp"

namespace weft::shm {

/// What a rank tells the others once the communicator is over. Zero-filled memory is its initial state.
struct MusterLines {
  static constexpr std::size_t kBlockBytes = 1024;

  alignas(kLinePair) std::atomic<std::uint64_t> musters;  ///< it has come to
  std::atomic<std::uint64_t> lost;                        ///< bit r: rank r is; never cleared
  std::atomic<std::uint64_t> posted;                      ///< muster << 32 | blocks posted in it
  std::uint32_t lengths[2];                               ///< of the posts that the blocks are parts of
  alignas(kLinePair) std::byte blocks[2][kBlockBytes];    ///< by parity
};

/// Where the ranks of a communicator that has failed find out who is left. A muster ends when all that are left have
/// come, and are of one opinion who is lost; opinions only grow, so that they become equal. One thread at a time, no
/// call under way.
class Muster {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  [[nodiscard]] static constexpr std::size_t bytes(int size) noexcept {
    return static_cast<std::size_t>(size) * sizeof(MusterLines) + alignof(MusterLines);
  }
  /// In bytes [offset, offset + bytes(size)) of `memory`, zero at first.
  Muster(std::shared_ptr<Mapping> memory, std::size_t offset, Channel& channel) noexcept;

  /// Waits for all that are left, and gives them, ascending.
  /// @throws Error{timeout} naming a rank that is left and did not come.
  [[nodiscard]] std::vector<int> call(std::chrono::milliseconds timeout);

  /// What each of `members`, those of the last call(), passes: equally many bytes. Everybody gets it, or those throw
  /// who wait for a rank that is lost meanwhile. @throws Error{peer_lost|timeout}
  [[nodiscard]] std::vector<std::byte> all_gather(std::vector<int> const& members, std::span<std::byte const> mine,
                                                  std::chrono::milliseconds timeout);

 private:
  [[nodiscard]] MusterLines& lines_of(int rank) const noexcept { return lines_[rank]; }
  [[nodiscard]] bool is_lost(int rank) const noexcept { return (lost_ >> static_cast<unsigned>(rank) & 1U) != 0; }
  /// Adds what this rank sees, and what others have seen.
  void look_around();
  /// A rank that is left and has not come, or is of another opinion; -1 when there is none.
  [[nodiscard]] int find_missing() const noexcept;
  [[noreturn]] void fail_astray(std::vector<int> const& members, int peer);
  /// Whether `peer` has; throws where it will not.
  [[nodiscard]] bool has_posted(int peer, std::uint64_t posted) const;
  void await_posts(std::vector<int> const& members, std::uint64_t posted, Deadline deadline,
                   std::chrono::milliseconds timeout);

  std::shared_ptr<Mapping> memory_;
  MusterLines* lines_;
  Channel& channel_;
  std::uint64_t musters_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t posts_ = 0;  ///< in this muster
};

/// As a bootstrap. The Muster must outlive it.
class ShmSurvivors final : public Survivors {
 public:
  /// Collective among those that are left. @throws as Muster::call()
  ShmSurvivors(Muster& muster, int rank, std::chrono::milliseconds timeout);

  [[nodiscard]] std::vector<int> const& members() const noexcept override { return members_; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    return muster_.all_gather(members_, mine, timeout_);
  }

 private:
  Muster& muster_;
  std::chrono::milliseconds timeout_;
  std::vector<int> members_;
  int rank_;
};

}  // namespace weft::shm
