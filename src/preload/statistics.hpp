#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::preload {

/// The intercepted MPI functions.
enum class Function {
  barrier,
  bcast,
  reduce,
  allreduce,
  reduce_scatter,
  reduce_scatter_block,
  scan,
  exscan,
  gather,
  gatherv,
  scatter,
  scatterv,
  allgather,
  allgatherv,
  alltoall,
  alltoallv,
  end
};

/// What became of a call: served by Weft, or passed on to MPI and why.
enum class Outcome {
  served,
  invalid,          ///< bad arguments: MPI decides what happens
  nothing_to_move,  ///< MPI returns at once
  unknown_operation,
  mpi_is_faster,
  intercommunicator,
  one_rank,
  too_many_ranks,
  several_hosts,
  too_many_communicators,
  being_freed,  ///< the program's callbacks call while MPI frees the communicator
  not_started,  ///< a rank could not set Weft up and has said why
  end
};

[[nodiscard]] std::string_view to_string(Function function) noexcept;  ///< "MPI_Allreduce"
[[nodiscard]] std::string_view to_string(Outcome outcome) noexcept;

/// Counts outcomes. Any thread.
class Statistics {
 public:
  void note(Function function, Outcome outcome) noexcept {
    counts_[static_cast<std::size_t>(function)][static_cast<std::size_t>(outcome)].fetch_add(1,
                                                                                             std::memory_order_relaxed);
  }
  /// One line for each function that was called: "MPI_Bcast: 12 served; 3 passed on (nothing to move 3)".
  [[nodiscard]] std::string report() const;

 private:
  using Row = std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Outcome::end)>;
  std::array<Row, static_cast<std::size_t>(Function::end)> counts_{};
};

}  // namespace weft::preload
