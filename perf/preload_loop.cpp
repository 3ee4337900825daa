// A latency loop like those of MPI programs: every iteration writes what it sends and reads what it received. It uses
// plain MPI; perf/compare_preload.py runs it with and without libweft_mpi.so.
//   preload_loop OPERATION BYTES ITERATIONS ROUNDS      OPERATION: allreduce bcast alltoall
// Rank 0 prints, for each round, the slowest rank's microseconds an iteration, and those of the loop without the call.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace {

class Loop {
 public:
  Loop(std::string operation, std::size_t bytes, int ranks)
      : operation_(std::move(operation)), send_(std::max<std::size_t>(1, bytes / sizeof(float))), recv_(send_.size()) {
    // For an all-to-all, BYTES is the size of the whole buffer.
    per_rank_ = std::max<std::size_t>(1, send_.size() / static_cast<std::size_t>(ranks));
    send_.resize(std::max(send_.size(), per_rank_ * static_cast<std::size_t>(ranks)));
    recv_.resize(send_.size());
  }

  /// Seconds that `iterations` take on this rank.
  double run(int iterations, bool call) {
    MPI_Barrier(MPI_COMM_WORLD);
    auto const start = MPI_Wtime();
    for (int i = 0; i < iterations; ++i) {
      std::fill(send_.begin(), send_.end(), static_cast<float>(i));
      if (call) collective();
      auto const& result = operation_ == "bcast" ? send_ : recv_;
      seen_ += std::accumulate(result.begin(), result.end(), 0.0F);
    }
    return MPI_Wtime() - start;
  }
  [[nodiscard]] float seen() const { return seen_; }

 private:
  void collective() {
    auto const count = static_cast<int>(send_.size());
    auto const part = static_cast<int>(per_rank_);
    if (operation_ == "allreduce")
      MPI_Allreduce(send_.data(), recv_.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (operation_ == "bcast")
      MPI_Bcast(send_.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else
      MPI_Alltoall(send_.data(), part, MPI_FLOAT, recv_.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
  }

  std::string operation_;
  std::vector<float> send_;
  std::vector<float> recv_;
  std::size_t per_rank_ = 0;
  float seen_ = 0;
};

bool is_known(std::string const& operation) {
  return operation == "allreduce" || operation == "bcast" || operation == "alltoall";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || !is_known(argv[1])) {
    std::fprintf(stderr, "usage: %s allreduce|bcast|alltoall BYTES ITERATIONS ROUNDS\n", argv[0]);
    return 2;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  auto const iterations = std::atoi(argv[3]);
  Loop loop(argv[1], std::strtoull(argv[2], nullptr, 10), ranks);
  loop.run(std::max(2, iterations / 10), true);
  for (int round = 0; round < std::atoi(argv[4]); ++round) {
    double const mine[] = {loop.run(iterations, true) / iterations * 1e6,
                           loop.run(iterations, false) / iterations * 1e6};
    double slowest[2] = {};
    MPI_Reduce(mine, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) std::printf("%.4f %.4f\n", slowest[0], slowest[1]);
  }
  if (loop.seen() < 0) std::puts("impossible");  // makes the reads necessary
  MPI_Finalize();
  return 0;
}
