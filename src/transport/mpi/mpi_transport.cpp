#include "transport/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "weft/error.hpp"

namespace weft::mpi {
namespace {

constexpr int kTag = 0;
/// Of polls; then ranks that share a core get their turn.
constexpr int kPollsPerYield = 100;

}  // namespace

Transport::Request MpiTransport::started(MPI_Request request) {
  auto free = std::find(requests_.begin(), requests_.end(), MPI_REQUEST_NULL);
  if (free == requests_.end()) free = requests_.insert(free, MPI_REQUEST_NULL);
  *free = request;
  return static_cast<Request>(free - requests_.begin() + 1);
}

Transport::Request MpiTransport::start_send(int to, std::span<std::byte const> bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  auto const turn = communicator_->session().enter();
  check_mpi(
      MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, kTag, communicator_->handle(), &request),
      "MPI_Isend");
  return started(request);
}

Transport::Request MpiTransport::start_recv(int from, std::span<std::byte> bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  auto const turn = communicator_->session().enter();
  check_mpi(
      MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, kTag, communicator_->handle(), &request),
      "MPI_Irecv");
  return started(request);
}

void MpiTransport::wait(Request& request) {
  if (request == Request::none) return;
  auto& mine = requests_[static_cast<std::size_t>(request) - 1];
  auto const deadline = std::chrono::steady_clock::now() + timeout_;
  for (int poll = 1;; ++poll) {
    int done = 0;
    {
      auto const turn = communicator_->session().enter();
      check_mpi(MPI_Test(&mine, &done, MPI_STATUS_IGNORE), "MPI_Test");
    }
    if (done != 0) break;
    if (poll % kPollsPerYield != 0) continue;
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() < deadline) continue;
    communicator_->abandon();
    throw Error(ErrorCode::timeout,
                fmt::format("rank {}: a message over MPI took more than {} ms while the network was "
                            "measured; WEFT_BACKEND says what to use without measuring",
                            rank(), timeout_.count()));
  }
  request = Request::none;
}

}  // namespace weft::mpi
