// The time that UCX itself takes for a small all_reduce of two ranks: one tagged message each way and an addition, with
// nothing checked, recorded or watched. No library on UCX can be faster. Timed like all others. hosts_perf.py compiles
// it.
//
//   ucx_loop ITERATIONS ROUNDS BYTES…
//
// prints one JSON line per size. Two ranks of mpirun; MPI only introduces them to each other.
#include <fmt/format.h>
#include <mpi.h>
#include <ucp/api/ucp.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "peers/loop.hpp"
#include "peers/mpi_meeting.hpp"

namespace {

using namespace weft::perf;  // NOLINT(google-build-using-namespace)

void check(ucs_status_t status, char const* call) {
  if (status != UCS_OK) throw std::runtime_error(fmt::format("{}: {}", call, ucs_status_string(status)));
}

/// A connection to the other rank.
class Connection {
 public:
  explicit Connection(int rank) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    ucp_context_h context = nullptr;
    check(ucp_init(&params, nullptr, &context), "ucp_init");
    ucp_worker_params_t single{};
    single.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    single.thread_mode = UCS_THREAD_MODE_SINGLE;
    check(ucp_worker_create(context, &single, &worker_), "ucp_worker_create");
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check(ucp_worker_get_address(worker_, &address, &length), "ucp_worker_get_address");
    constexpr int kRoom = 4096;
    std::vector<char> theirs(kRoom);
    MPI_Sendrecv(address, static_cast<int>(length), MPI_BYTE, 1 - rank, 0, theirs.data(), kRoom, MPI_BYTE, 1 - rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ucp_worker_release_address(worker_, address);
    ucp_ep_params_t peer{};
    peer.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    peer.address = reinterpret_cast<ucp_address_t const*>(theirs.data());
    check(ucp_ep_create(worker_, &peer, &endpoint_), "ucp_ep_create");
  }

  void exchange(void const* send, void* recv, std::size_t bytes) {
    ucp_request_param_t const plain{};
    auto* const received = ucp_tag_recv_nbx(worker_, recv, bytes, 0, 0, &plain);
    auto* const sent = ucp_tag_send_nbx(endpoint_, send, bytes, 0, &plain);
    finish(received);
    finish(sent);
  }

 private:
  void finish(ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return check(UCS_PTR_RAW_STATUS(request), "a message");
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
    ucp_request_free(request);
  }

  ucp_worker_h worker_ = nullptr;  // never freed: it ends with the process
  ucp_ep_h endpoint_ = nullptr;
};

void run(int argc, char** argv) {
  auto const meeting = mpi_meeting();
  if (meeting.ranks != 2) throw std::runtime_error("two ranks are expected");
  Connection connection(meeting.rank);
  LoopJob job;
  job.iterations = std::stoi(argv[1]);
  job.rounds = std::stoi(argv[2]);
  for (int i = 3; i < argc; ++i) job.sizes.push_back(std::stoull(argv[i]));
  std::vector<float> theirs(job.sizes.back() / sizeof(float));
  auto const results = run_loop(meeting, job, [&](Op, Operands const& on, Place) {
    return [&, on] {
      connection.exchange(on.send.data, theirs.data(), on.send.bytes());
      auto const* const mine = static_cast<float const*>(on.send.data);
      auto* const sum = static_cast<float*>(on.recv.data);
      for (std::size_t i = 0; i < on.recv.count; ++i) sum[i] = mine[i] + theirs[i];
    };
  });
  if (meeting.rank == 0) fmt::print("{}", json_lines("UCX", ucp_get_version_string(), job, meeting.ranks, results));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: {} ITERATIONS ROUNDS BYTES…\n", argv[0]);
    return 2;
  }
  MPI_Init(&argc, &argv);
  try {
    run(argc, argv);
  } catch (std::exception const& error) {
    fmt::print(stderr, "ucx_loop: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
