// The peer loop behind a C interface, for libraries that are called from Python (peers/torch_loop.py loads it with
// ctypes).
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "peers/loop.hpp"

extern "C" {

/// Collective among the ranks. The callbacks: `broadcast(values, count)` gives every rank the int64s of rank 0;
/// `barrier()` waits for all ranks; `prepare(send, send_count, recv, recv_count)` registers operands for later calls,
/// in f32 elements; `call(index)` makes the call on the operands registered index-th. Rank 0 prints JSON lines.
/// @returns 0, or 1 after a line on stderr.
using WeftBroadcast = void (*)(std::int64_t* values, std::size_t count);
using WeftBarrier = void (*)();
using WeftPrepare = void (*)(void* send, std::size_t send_count, void* recv, std::size_t recv_count);
using WeftCall = void (*)(int index);

__attribute__((visibility("default"))) int weft_perf_run(int rank, int ranks, char const* library, char const* version,
                                                         char const* op, int iterations, int rounds,
                                                         std::size_t const* sizes, std::size_t size_count,
                                                         WeftBroadcast broadcast, WeftBarrier barrier,
                                                         WeftPrepare prepare, WeftCall call) {
  using namespace weft::perf;  // NOLINT(google-build-using-namespace)
  try {
    Meeting const meeting{rank, ranks, [=](std::span<std::int64_t> values) { broadcast(values.data(), values.size()); },
                          [=] { barrier(); }};
    LoopJob job;
    job.op = op;
    job.sizes.assign(sizes, sizes + size_count);
    job.iterations = iterations;
    job.rounds = rounds;
    int prepared = 0;
    auto const results = run_loop(meeting, job, [&](Op, Operands const& on, Place) {
      prepare(on.send.data, on.send.count, on.recv.data, on.recv.count);
      return [call, index = prepared++] { call(index); };
    });
    if (rank == 0) {
      fmt::print("{}", json_lines(library, version, job, ranks, results));
      std::fflush(stdout);
    }
    return 0;
  } catch (std::exception const& error) {
    fmt::print(stderr, "{}: {}\n", library, error.what());
    return 1;
  }
}

}  // extern "C"
