#include "transport/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace weft::mpi {
namespace {

constexpr int kTag = 0;
/// After so many polls a wait yields, so that ranks that share its core get their turn.
constexpr int kPollsPerYield = 100;

}  // namespace

bool MpiTransport::Messages::settled() noexcept {
  return std::all_of(all.begin(), all.end(), [](Message& message) {
    int done = 0;
    return MPI_Test(&message.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
  });
}

MpiTransport::~MpiTransport() {
  auto const is_over = [](Message const& message) { return message.request == MPI_REQUEST_NULL; };
  if (std::all_of(messages_->all.begin(), messages_->all.end(), is_over)) return;
  communicator_->abandon();
  communicator_->session().keep(std::move(messages_));
}

void MpiTransport::throw_if_failed() const {
  if (failure_) throw Error(*failure_);
}

std::size_t MpiTransport::take(std::size_t bytes) {
  throw_if_failed();
  auto& all = messages_->all;
  auto const free =
      std::find_if(all.begin(), all.end(), [](Message const& each) { return each.request == MPI_REQUEST_NULL; });
  auto const index = static_cast<std::size_t>(free - all.begin());
  if (free == all.end()) all.emplace_back();
  if (all[index].bytes.size() < bytes) all[index].bytes.resize(bytes);
  all[index].to = {};
  return index;
}

Transport::Request MpiTransport::start_send(int to, std::span<std::byte const> bytes) {
  auto const index = take(bytes.size());
  auto& message = messages_->all[index];
  std::copy(bytes.begin(), bytes.end(), message.bytes.begin());
  auto const turn = communicator_->session().enter();
  check_mpi(MPI_Isend(message.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, kTag, communicator_->handle(),
                      &message.request),
            "MPI_Isend");
  return Request{index + 1};
}

Transport::Request MpiTransport::start_recv(int from, std::span<std::byte> bytes) {
  auto const index = take(bytes.size());
  auto& message = messages_->all[index];
  message.to = bytes;
  auto const turn = communicator_->session().enter();
  check_mpi(MPI_Irecv(message.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, kTag,
                      communicator_->handle(), &message.request),
            "MPI_Irecv");
  return Request{index + 1};
}

void MpiTransport::wait(Request& request) {
  if (request == Request::none) return;
  throw_if_failed();
  auto& message = messages_->all[static_cast<std::size_t>(request) - 1];
  try {
    poll_until_done(message);
  } catch (Error const& error) {
    failure_ = error;
    throw;
  }
  std::copy_n(message.bytes.begin(), message.to.size(), message.to.begin());
  request = Request::none;
}

void MpiTransport::poll_until_done(Message& message) {
  auto const deadline = std::chrono::steady_clock::now() + timeout_;
  for (int poll = 1;; ++poll) {
    int done = 0;
    {
      auto const turn = communicator_->session().enter();
      check_mpi(MPI_Test(&message.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    }
    if (done != 0) return;
    if (poll % kPollsPerYield != 0) continue;
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() < deadline) continue;
    throw Error(ErrorCode::timeout,
                fmt::format("rank {}: a message over MPI took more than {} ms while the network was "
                            "measured; WEFT_BACKEND says what to use without measuring",
                            rank(), timeout_.count()));
  }
}

}  // namespace weft::mpi
