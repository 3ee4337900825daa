// Times any MPI library as the nccl-tests-style programs time Weft. It does not use Weft's communicators. compare.py
// compiles it once for each MPI.
//
//   mpi_loop LIBRARY VERSION OP ITERATIONS ROUNDS BYTES…
//
// prints one JSON line per size.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "peers/loop.hpp"
#include "peers/mpi_calls.hpp"
#include "peers/mpi_meeting.hpp"

namespace {

using namespace weft::perf;  // NOLINT(google-build-using-namespace)

LoopJob job_of(int argc, char** argv) {
  LoopJob job;
  job.op = argv[3];
  job.iterations = std::stoi(argv[4]);
  job.rounds = std::stoi(argv[5]);
  for (int i = 6; i < argc; ++i) job.sizes.push_back(std::stoull(argv[i]));
  return job;
}

int run(int argc, char** argv) {
  auto const meeting = mpi_meeting();
  auto const job = job_of(argc, argv);
  auto const results = run_loop(meeting, job, [](Op what, Operands const& on, Place place) {
    return mpi_call(what, on, place, MPI_FLOAT, MPI_SUM);
  });
  if (meeting.rank == 0) fmt::print("{}", json_lines(argv[1], argv[2], job, meeting.ranks, results));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    fmt::print(stderr, "usage: {} LIBRARY VERSION OP ITERATIONS ROUNDS BYTES…\n", argv[0]);
    return 2;
  }
  MPI_Init(&argc, &argv);  // single-threaded, MPI's fastest mode
  try {
    run(argc, argv);
  } catch (std::exception const& error) {
    fmt::print(stderr, "mpi_loop: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
