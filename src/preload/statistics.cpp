#include "preload/statistics.hpp"

#include <fmt/format.h>

namespace weft::preload {

std::string_view to_string(Function function) noexcept {
  switch (function) {
    case Function::barrier: return "MPI_Barrier";
    case Function::bcast: return "MPI_Bcast";
    case Function::reduce: return "MPI_Reduce";
    case Function::allreduce: return "MPI_Allreduce";
    case Function::reduce_scatter: return "MPI_Reduce_scatter";
    case Function::reduce_scatter_block: return "MPI_Reduce_scatter_block";
    case Function::scan: return "MPI_Scan";
    case Function::exscan: return "MPI_Exscan";
    case Function::gather: return "MPI_Gather";
    case Function::gatherv: return "MPI_Gatherv";
    case Function::scatter: return "MPI_Scatter";
    case Function::scatterv: return "MPI_Scatterv";
    case Function::allgather: return "MPI_Allgather";
    case Function::allgatherv: return "MPI_Allgatherv";
    case Function::alltoall: return "MPI_Alltoall";
    case Function::alltoallv: return "MPI_Alltoallv";
    case Function::end: break;
  }
  return "unknown function";
}

std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::served: return "served";
    case Outcome::invalid: return "invalid arguments";
    case Outcome::nothing_to_move: return "nothing to move";
    case Outcome::unknown_operation: return "operation or type unknown to Weft";
    case Outcome::mpi_is_faster: return "MPI is faster at this size";
    case Outcome::intercommunicator: return "inter-communicator";
    case Outcome::one_rank: return "one rank";
    case Outcome::too_many_ranks: return "too many ranks";
    case Outcome::several_hosts: return "several hosts";
    case Outcome::too_many_communicators: return "too many communicators";
    case Outcome::being_freed: return "communicator being freed";
    case Outcome::not_started: return "Weft could not start";
    case Outcome::end: break;
  }
  return "unknown outcome";
}

std::string Statistics::report() const {
  std::string text;
  for (std::size_t function = 0; function < counts_.size(); ++function) {
    std::uint64_t passed = 0;
    std::string reasons;
    for (std::size_t outcome = 1; outcome < counts_[function].size(); ++outcome) {
      auto const count = counts_[function][outcome].load(std::memory_order_relaxed);
      if (count == 0) continue;
      passed += count;
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", to_string(static_cast<Outcome>(outcome)), count);
    }
    auto const served = counts_[function][static_cast<std::size_t>(Outcome::served)].load(std::memory_order_relaxed);
    if (served + passed == 0) continue;
    text += fmt::format("{}: {} served; {} passed on{}\n", to_string(static_cast<Function>(function)), served, passed,
                        reasons.empty() ? "" : " (" + reasons + ")");
  }
  return text;
}

}  // namespace weft::preload
