#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/config.hpp"

namespace weft {

struct MpiMembers;

/// How ranks find one another before they can communicate. Small and slow: used while communicators are created.
/// One thread at a time per object.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Where the ranks came from, for messages: "mpi", "fork", "threads", "torchrun", "single".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Collective: every rank passes equally many bytes and receives all ranks' bytes, in rank order.
  /// @throws Error{peer_lost|timeout} when a rank does not come.
  [[nodiscard]] virtual std::vector<std::byte> all_gather(std::span<std::byte const> mine) = 0;

  /// The MPI processes that the ranks are; null where MPI did not start them, or was not asked for yet.
  [[nodiscard]] virtual std::shared_ptr<MpiMembers const> mpi() const { return nullptr; }
  /// Collective, for a communicator that goes through MPI: the same, found first where need be; mpi() knows them then.
  [[nodiscard]] virtual std::shared_ptr<MpiMembers const> join_mpi() { return mpi(); }
};

/// For a join_mpi() of ranks that found one another without MPI. Collective over the bootstrap. Initialises MPI, for
/// which all processes that MPI's launcher has started must come; null, and MPI is left alone, where it has started
/// none of the ranks. @throws Error{unsupported} when it has started some, or ranks are forks of one, or Weft was built
/// without MPI.
[[nodiscard]] std::shared_ptr<MpiMembers const> find_mpi_members(Bootstrap& bootstrap);

// All that take a Config throw Error{invalid_argument} when one of its members is wrong.

/// One rank, no peers.
[[nodiscard]] std::shared_ptr<Bootstrap> single_bootstrap();

/// Ranks as threads of this process: element r belongs to rank r. The reference for tests.
[[nodiscard]] std::vector<std::shared_ptr<Bootstrap>> thread_bootstraps(int size, Config const& config = {});

/// Ranks that were (or will be) forked from this process: create before fork(), in the child `r` call element r.
/// State lives in an anonymous shared mapping; nothing is left behind.
[[nodiscard]] std::vector<std::shared_ptr<Bootstrap>> fork_bootstraps(int size, Config const& config = {});

/// Ranks started by torchrun (by its variables). Those of one host meet on an abstract socket, those of several at rank
/// 0's MASTER_ADDR and MASTER_PORT, or the port after it where torchrun's agent has that one. @throws
/// Error{invalid_argument} naming the missing or inconsistent variable, or a MASTER_ADDR that is not of rank 0's host.
[[nodiscard]] std::shared_ptr<Bootstrap> torchrun_bootstrap(Config const& config = {});

/// The ranks of MPI_COMM_WORLD (initialises MPI when needed, with MPI_THREAD_MULTIPLE where the library allows it).
/// @throws Error{unsupported} when Weft was built without MPI.
[[nodiscard]] std::shared_ptr<Bootstrap> mpi_bootstrap(Config const& config = {});

/// What this process was started by: torchrun (within mpirun or srun, too), mpirun (also srun's PMIx/PMI2), or nothing:
/// then a single rank.
[[nodiscard]] std::shared_ptr<Bootstrap> bootstrap_from_environment(Config const& config = {});

}  // namespace weft
