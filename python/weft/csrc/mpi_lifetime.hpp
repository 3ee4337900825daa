#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "weft/bootstrap.hpp"

namespace weft::torch_backend {

/// Keeps MPI running, once a group has needed it, until the process ends: groups come and go, but MPI starts only once.
/// Any thread.
class MpiLifetime {
 public:
  /// A group goes through MPI, whose processes are `members`.
  void keep(std::shared_ptr<MpiMembers const> members);
  /// A group that is to be shut down before MPI ends.
  void add(c10::intrusive_ptr<c10d::Backend> const& group);
  /// Shuts down what groups are left and finalises MPI, for which every process of the job must come. Nothing where no
  /// group has needed MPI.
  void finish();

 private:
  std::mutex mutex_;
  std::shared_ptr<MpiMembers const> members_;
  std::vector<c10::weak_intrusive_ptr<c10d::Backend>> groups_;
};

/// This process's; it outlives everything else, so that a process that fails leaves MPI as it is.
[[nodiscard]] MpiLifetime& mpi_lifetime();

}  // namespace weft::torch_backend
