#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/outcome.hpp"
#include "collectives/peer_state.hpp"
#include "collectives/shm/control_block.hpp"
#include "collectives/shm/segment.hpp"
#include "collectives/survivors.hpp"
#include "core/cache_line.hpp"

namespace weft::shm {

/// What a rank tells the others once the communicator is over. Zero-filled memory is its initial state.
struct MusterLines {
  static constexpr std::size_t kBlockBytes = 1024;

  alignas(kLinePair) std::atomic<std::uint64_t> musters;  ///< how many it has come to
  std::atomic<std::uint64_t> lost;                        ///< bit r: rank r is lost; never cleared
  std::atomic<std::uint64_t> posted;                      ///< muster << 32 | blocks posted in it
  std::atomic<std::uint64_t> concluded;                   ///< the muster that `outcome` is of
  std::uint32_t lengths[2];                               ///< of the posts that the blocks are parts of
  alignas(kLinePair) std::byte blocks[2][kBlockBytes];    ///< by parity
  Outcome outcome;                                        ///< apart from the blocks, which others may still read
};

/// How the ranks of a communicator that has failed agree who is left. call() returns once all that are left have come,
/// and have the same list of lost ranks; ranks are only ever added to these lists, so they become equal. One thread at
/// a time, with no call under way.
///
/// A muster is one call(), any number of all_gather(), and conclude(), also after an all_gather() that failed. A rank
/// that throws peer_lost begins again with call(). So do all others, because none of them gets the outcome of a rank
/// that never told it.
class Muster {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Look = std::function<PeerState(int rank)>;

  [[nodiscard]] static constexpr std::size_t bytes(int size) noexcept {
    return static_cast<std::size_t>(size) * sizeof(MusterLines) + alignof(MusterLines);
  }
  /// In bytes [offset, offset + bytes(size)) of `memory`, zero at first.
  Muster(std::shared_ptr<Mapping> memory, std::size_t offset, int rank, int size, Look look) noexcept;

  /// Waits for all ranks that are left, and returns them in ascending order.
  /// @throws Error{timeout} naming a rank that is left and did not come.
  [[nodiscard]] std::vector<int> call(std::chrono::milliseconds timeout);

  /// What each of `members`, the result of the last call(), passes in `mine`: equally many bytes each. A rank throws if
  /// one that it waits for is lost meanwhile, or has concluded. @throws Error{peer_lost|timeout}, or what that rank
  /// concluded with.
  [[nodiscard]] std::vector<std::byte> all_gather(std::vector<int> const& members, std::span<std::byte const> mine,
                                                  std::chrono::milliseconds timeout);

  /// The last step: tells the others how it went for this rank, and returns all members' outcomes. @throws
  /// Error{peer_lost|timeout}
  [[nodiscard]] std::vector<Outcome> conclude(std::vector<int> const& members, Outcome const& mine,
                                              std::chrono::milliseconds timeout);

 private:
  [[nodiscard]] MusterLines& lines_of(int rank) const noexcept { return lines_[rank]; }
  [[nodiscard]] bool is_lost(int rank) const noexcept { return (lost_ >> static_cast<unsigned>(rank) & 1U) != 0; }
  /// Adds the ranks that this one sees to be lost, and those that others have seen.
  void look_around();
  /// A rank that is left and has not come, or has another list of lost ranks; -1 when there is none.
  [[nodiscard]] int find_missing() const noexcept;
  /// Whether `peer` has done what is_there() looks for. Throws if it is lost, or knows of another loss and so begins
  /// again.
  template <typename IsThere>
  [[nodiscard]] bool has(int peer, IsThere const& is_there) const;
  [[nodiscard]] bool has_posted(int peer, std::uint64_t posted) const;
  /// Waits until has_come(peer) for all members.
  template <typename HasCome>
  void await(std::vector<int> const& members, HasCome const& has_come, Deadline deadline,
             std::chrono::milliseconds timeout) const;

  std::shared_ptr<Mapping> memory_;
  MusterLines* lines_;
  int const rank_;
  int const size_;
  Look const look_;
  std::uint64_t musters_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t posts_ = 0;  ///< in this muster
};

/// The ranks that a muster found, as a bootstrap. The Muster must outlive it.
class ShmSurvivors final : public Survivors {
 public:
  /// Collective among those that are left. @throws as Muster::call()
  ShmSurvivors(Muster& muster, int rank, std::chrono::milliseconds timeout);

  [[nodiscard]] std::vector<int> const& members() const noexcept override { return members_; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    return muster_.all_gather(members_, mine, timeout_);
  }
  [[nodiscard]] std::optional<Error> conclude(Outcome const& mine) override {
    return first_failure(muster_.conclude(members_, mine, timeout_), members_);
  }

 private:
  Muster& muster_;
  std::chrono::milliseconds timeout_;
  std::vector<int> members_;
  int rank_;
};

}  // namespace weft::shm
