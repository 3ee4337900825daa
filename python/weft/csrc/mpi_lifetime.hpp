#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "weft/bootstrap.hpp"

namespace weft::torch_backend {

/// Once a group has needed MPI, keeps it running until the process ends: groups come and go, but MPI can start only
/// once. Any thread.
class MpiLifetime {
 public:
  /// Tells that a group uses MPI, whose processes are `members`.
  void keep(std::shared_ptr<MpiMembers const> members);
  /// Adds a group that must be shut down before MPI ends.
  void add(c10::intrusive_ptr<c10d::Backend> const& group);
  /// Shuts down the remaining groups and finalises MPI, in which every process of the job must take part. Does nothing
  /// if no group has needed MPI.
  void finish();

 private:
  std::mutex mutex_;
  std::shared_ptr<MpiMembers const> members_;
  std::vector<c10::weak_intrusive_ptr<c10d::Backend>> groups_;
};

/// This process's instance; it is never destroyed, so that a process that fails leaves MPI as it is.
[[nodiscard]] MpiLifetime& mpi_lifetime();

}  // namespace weft::torch_backend
