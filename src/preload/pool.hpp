#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "preload/statistics.hpp"
#include "weft/communicator.hpp"
#include "weft/config.hpp"

namespace weft::preload {

/// A Weft communicator and the name its ranks know it by.
struct Team {
  Communicator ranks;
  std::uint64_t id = 0;     ///< drawn at random by its rank 0
  std::uint64_t order = 0;  ///< teams this process made before it
  bool broken = false;      ///< a call failed: all later ones will
};

/// Weft communicators for MPI communicators, used again after those are freed: making one takes milliseconds and
/// megabytes, MPI programs make and free communicators by the thousand.
///
/// MPI frees communicators at different times on different ranks, so a free team may be in use elsewhere. acquire()
/// therefore has all ranks offer the free teams they hold in their place and takes one that all of them hold: it has
/// the same ranks in the same order. Any thread.
class Pool {
 public:
  static constexpr std::size_t kMostTeams = 64;  ///< of one process, free ones included
  static constexpr int kMostRanks = 64;

  /// `config` is empty when this rank cannot serve; then no communicator it belongs to is served.
  Pool(std::optional<Config> config, std::function<void()> progress)
      : config_(std::move(config)), progress_(std::move(progress)) {}

  /// Collective over the intra-communicator `communicator`, of 2 to kMostRanks ranks: all get a team, or all get none
  /// for the reason left in `why`.
  [[nodiscard]] std::unique_ptr<Team> acquire(MPI_Comm communicator, Outcome& why);

  /// Local.
  void release(std::unique_ptr<Team> team) noexcept;

  /// Local: lets go of all free teams.
  void clear() noexcept;

 private:
  struct Offer;
  [[nodiscard]] Offer make_offer(int rank, int size, std::vector<std::unique_ptr<Team>>& offered);
  [[nodiscard]] std::unique_ptr<Team> create(MPI_Comm communicator, std::uint64_t id);
  void make_room() noexcept;

  std::optional<Config> const config_;
  std::function<void()> const progress_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Team>> free_;  ///< in the order they were made
  std::size_t teams_ = 0;                    ///< free or not
  std::uint64_t made_ = 0;
};

}  // namespace weft::preload
