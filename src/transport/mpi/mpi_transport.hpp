#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/mpi_session.hpp"
#include "transport/transport.hpp"
#include "weft/error.hpp"

namespace weft::mpi {

/// A Transport over MPI, to measure what MPI's messages cost. Waits poll, and the only failure that a rank notices is
/// that its own wait took too long. Messages are shorter than 2 GiB, and copied, as MpiBackend's are, since MPI cannot
/// be made to release memory that it uses.
class MpiTransport final : public Transport {
 public:
  /// Nothing else may use `communicator` meanwhile. `timeout`: of each wait.
  MpiTransport(std::shared_ptr<MpiCommunicator> communicator, std::chrono::milliseconds timeout)
      : communicator_(std::move(communicator)), timeout_(timeout), messages_(std::make_unique<Messages>()) {}
  ~MpiTransport() override;

  [[nodiscard]] int rank() const noexcept override { return communicator_->rank(); }
  [[nodiscard]] int size() const noexcept override { return communicator_->size(); }
  [[nodiscard]] Request start_send(int to, std::span<std::byte const> bytes) override;
  [[nodiscard]] Request start_recv(int from, std::span<std::byte> bytes) override;
  /// @throws Error{timeout|system}
  void wait(Request& request) override;

 private:
  /// A message under way. Once it is over, the next one takes its place and its memory.
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<std::byte> bytes;
    std::span<std::byte> to;  ///< where a received message is copied to
  };
  struct Messages final : MpiRemains {
    std::deque<Message> all;  ///< with stable addresses; a Request is an index plus one
    [[nodiscard]] bool settled() noexcept override;
  };

  void throw_if_failed() const;
  /// A place for a message of so many bytes.
  [[nodiscard]] std::size_t take(std::size_t bytes);
  void poll_until_done(Message& message);

  std::shared_ptr<MpiCommunicator> communicator_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Messages> messages_;
  std::optional<Error> failure_;  // of a wait; all later calls throw it too
};

}  // namespace weft::mpi
