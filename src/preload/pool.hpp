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
  std::uint64_t id = 0;     ///< drawn at random by the team's rank 0
  std::uint64_t order = 0;  ///< how many teams this process made before it
  bool broken = false;      ///< a call failed, so all later ones will
};

/// Keeps Weft communicators for MPI communicators, and uses them again after those are freed: making one takes
/// milliseconds and megabytes, and MPI programs make and free communicators by the thousand.
///
/// MPI frees communicators at different times on different ranks, so a team that is free here may be in use elsewhere.
/// In acquire() all ranks therefore offer the free teams in which they have the same rank, and take one that all of
/// them hold: it has the same ranks in the same order. Any thread.
class Pool {
 public:
  static constexpr std::size_t kMostTeams = 64;  ///< teams of one process, free ones included
  static constexpr int kMostRanks = 64;

  /// `config` is empty where this rank cannot serve; then no communicator that it belongs to is served.
  Pool(std::optional<Config> config, std::function<void()> progress)
      : config_(std::move(config)), progress_(std::move(progress)) {}

  /// Collective over the intra-communicator `communicator`, of 2 to kMostRanks ranks: all ranks get a team, or all get
  /// none and the reason in `why`.
  [[nodiscard]] std::unique_ptr<Team> acquire(MPI_Comm communicator, Outcome& why);

  /// Local: gives a team back.
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
