// What only ranks of MPI come across.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/mpi_probe/failures.hpp"
#include "transport/mpi/mpi_transport.hpp"

namespace weft::test {
namespace {

/// Whether this rank stops where it would move data of a call that it has announced.
bool stops_within = false;

/// The last rank stops within `calls`, whom `hasty` gives up first; all others name it.
void stop_last(Job const& job, int hasty, std::function<void(Communicator&, CollectiveOptions const&)> const& calls) {
  auto const last = job.size() - 1;
  auto world = job.create();
  auto const mine = getpid();
  auto const pids = job.bootstrap->all_gather(std::as_bytes(std::span(&mine, 1)));
  world.barrier();
  auto const name = "rank " + std::to_string(last);
  auto const limit = job.rank() == hasty ? kImpatience : 2 * kImpatience;
  stops_within = job.rank() == last;
  expect_error(ErrorCode::timeout, job.rank() == last ? name : name + " did not complete",
               [&] { calls(world, {.timeout = limit}); });
  if (job.rank() != hasty) return;
  pid_t stopped = 0;
  std::memcpy(&stopped, pids.data() + static_cast<std::size_t>(last) * sizeof stopped, sizeof stopped);
  kill(stopped, SIGCONT);
}

}  // namespace

using std::chrono::milliseconds;

void stop_in_gather(Job const& job, int hasty) {
  stop_last(job, hasty, [&](Communicator& world, CollectiveOptions const& options) {
    float const part = 1;
    std::vector<float> all(static_cast<std::size_t>(job.size()));
    auto const root = job.size() - 2;
    world.gather(std::span(&part, 1), std::span(all).subspan(0, job.rank() == root ? all.size() : 0), root, options);
    world.barrier(options);
  });
}

void stop_between_hosts(Job const& job, int hasty) {
  stop_last(job, hasty, [&](Communicator& world, CollectiveOptions const& options) {
    std::vector<float> values(std::size_t{1} << 20);
    world.broadcast(std::span(values), 0, options);
    world.barrier(options);
  });
}

void late_to_mpi(Job const& job) {
  auto const meet = [&] {
    std::byte const here{};
    (void)job.bootstrap->all_gather(std::span(&here, 1));
  };
  auto config = *job.options.config;
  config.timeout = milliseconds(300);
  auto const impatient = mpi_bootstrap(config);
  std::byte const one{1};
  auto const exchange = [&] {
    expect_error(ErrorCode::timeout, "not every rank joined", [&] { (void)impatient->all_gather(std::span(&one, 1)); });
  };
  if (job.rank() == 0) exchange();
  meet();
  exchange();

  constexpr std::size_t kBytes = 1000;
  std::vector<std::byte> memory(kBytes, std::byte{1});
  mpi::MpiTransport transport(MpiCommunicator::duplicate_world(), config.timeout);
  if (job.rank() == 0) {
    auto request = transport.start_recv(1, memory);
    expect_error(ErrorCode::timeout, "a message over MPI took more than", [&] { transport.wait(request); });
    expect_error(ErrorCode::timeout, "a message over MPI took more than",
                 [&] { static_cast<void>(transport.start_recv(1, memory)); });
  }
  meet();
  if (job.rank() == 1) transport.send(0, std::vector<std::byte>(kBytes, std::byte{2}));
  for (int turn = 0; turn < 10; ++turn) meet();  // the message has come with the first of these
  require(memory == std::vector<std::byte>(kBytes, std::byte{1}), "a message came to memory that had been given up");
}

}  // namespace weft::test

extern "C" int MPI_Igatherv(void const* send, int count, MPI_Datatype type, void* recv, int const* counts,
                            int const* offsets, MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request* request) {
  if (std::exchange(weft::test::stops_within, false)) raise(SIGSTOP);
  return PMPI_Igatherv(send, count, type, recv, counts, offsets, recv_type, root, comm, request);
}

extern "C" int MPI_Ialltoallv(void const* send, int const* send_counts, int const* send_offsets, MPI_Datatype send_type,
                              void* recv, int const* recv_counts, int const* recv_offsets, MPI_Datatype recv_type,
                              MPI_Comm comm, MPI_Request* request) {
  if (std::exchange(weft::test::stops_within, false)) raise(SIGSTOP);
  return PMPI_Ialltoallv(send, send_counts, send_offsets, send_type, recv, recv_counts, recv_offsets, recv_type, comm,
                         request);
}
