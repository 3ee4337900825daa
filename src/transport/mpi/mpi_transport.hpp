#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/mpi_session.hpp"
#include "transport/transport.hpp"

namespace weft::mpi {

/// A Transport of MPI's messages, to measure what those cost: waits poll, and of failures a rank only learns that its
/// own wait took too long. Messages are shorter than 2 GiB.
class MpiTransport final : public Transport {
 public:
  /// Nothing else uses `communicator` meanwhile. `timeout`: of each wait.
  MpiTransport(std::shared_ptr<MpiCommunicator> communicator, std::chrono::milliseconds timeout)
      : communicator_(std::move(communicator)), timeout_(timeout) {}

  [[nodiscard]] int rank() const noexcept override { return communicator_->rank(); }
  [[nodiscard]] int size() const noexcept override { return communicator_->size(); }
  [[nodiscard]] Request start_send(int to, std::span<std::byte const> bytes) override;
  [[nodiscard]] Request start_recv(int from, std::span<std::byte> bytes) override;
  /// @throws Error{timeout|system}
  void wait(Request& request) override;

 private:
  [[nodiscard]] Request started(MPI_Request request);

  std::shared_ptr<MpiCommunicator> communicator_;
  std::chrono::milliseconds timeout_;
  std::vector<MPI_Request> requests_;  // under way, or null; a Request is a place in it, and one
};

}  // namespace weft::mpi
