// Measures the part of a ZeRO-1 step between backward and the next forward, done in three ways in one run: fused, as
// separate passes, and as blocking MPI calls around a scalar AdamW.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/command_line.hpp"
#include "common/median.hpp"
#include "zero_step/sides.hpp"

namespace weft::perf {
namespace {

struct Options {
  Workload workload;
  int ranks = 2;
  int rounds = 7;
  double min_passes = 1.4;
  double min_mpi = 3;
  std::string json;
};

using Clock = std::chrono::steady_clock;

struct Entry {
  std::string name;
  std::unique_ptr<Side> side;
  std::vector<double> seconds;  ///< of each round, the slowest rank's
  std::map<std::string, std::vector<double>> parts;
  double checksum = 0;  ///< so that parameters are read
};

std::vector<Entry> sides_of(Communicator& world, Workload const& workload) {
  std::vector<Entry> entries(2);
  entries[0].name = "fused";
  entries[0].side = fused_side(world, workload);
  auto const model = std::make_shared<FlatModel>(world, workload);
  entries[1].name = "passes";
  entries[1].side = passes_side(world, workload, model);
  if (auto mpi = mpi_side(world, workload, model)) {
    entries.emplace_back();
    entries.back().name = "mpi";
    entries.back().side = std::move(mpi);
  }
  return entries;
}

/// Times one phase. Gradients are written just before it, and parameters are read after it.
double time_phase(Communicator& world, Entry& entry, std::size_t step) {
  entry.side->write_gradients(world.rank(), step);
  world.barrier();
  auto const start = Clock::now();
  entry.side->phase();
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  entry.checksum += entry.side->read_parameters();
  world.all_reduce(std::span<double const>(&seconds, 1), std::span<double>(&seconds, 1), ReduceOp::max).wait();
  return seconds;
}

void measure(Communicator& world, Options const& options, std::vector<Entry>& entries) {
  std::size_t const rounds = static_cast<std::size_t>(options.rounds) + 1;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Entry& entry = entries[(i + round) % entries.size()];
      double const seconds = time_phase(world, entry, round);
      if (round == 0) continue;  // round 0 touches pages for the first time
      entry.seconds.push_back(seconds);
      for (auto const& [name, part] : entry.side->parts()) entry.parts[name].push_back(part);
    }
  }
}

/// Has every side do the same steps on a small model. @throws Error{mismatch} if their results differ.
void verify(Communicator& world, Workload workload, bool clips) {
  workload.tensors = 5;
  workload.tensor_count = 9600;
  if (!clips) workload.max_norm = 1e30;  // MPI's side does not clip
  std::vector<std::unique_ptr<Side>> sides;
  sides.push_back(fused_side(world, workload));
  sides.push_back(passes_side(world, workload, std::make_shared<FlatModel>(world, workload)));
  auto mpi = clips ? nullptr : mpi_side(world, workload, std::make_shared<FlatModel>(world, workload));
  if (mpi) sides.push_back(std::move(mpi));
  std::vector<float> first;
  for (auto const& side : sides) {
    for (std::size_t step = 0; step < 3; ++step) {
      side->write_gradients(world.rank(), step);
      side->phase();
    }
    std::vector<float> const got = side->masters();
    if (first.empty()) first = got;
    float worst = 0;
    float moved = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - first[i]));
      moved = std::max(moved, std::abs(got[i] - initial_value(i % workload.tensor_count)));
    }
    if (worst <= 1e-6F && moved > 1e-4F) continue;
    throw Error(ErrorCode::mismatch, "zero_step_perf: the sides do not compute the same: parameters differ by " +
                                         std::to_string(worst) + " after moving by " + std::to_string(moved));
  }
}

void print_head(Communicator const& world, Options const& options) {
  Workload const& w = options.workload;
  std::printf(
      "# %zu M parameters (bf16, f32 originals), f32 gradients of a loss scaled by %g, AdamW, %d ranks, %d rounds\n",
      w.count() / 1'000'000, static_cast<double>(w.loss_scale), world.size(), options.rounds);
  std::printf(
      "# fused   ZeroOptimizer, stage 1: reduce_scatter by bucket (%zu MiB), overflow, norm, clip (active), AdamW, "
      "bf16, "
      "zeros, all_gather\n",
      w.bucket_mib);
  std::printf("# passes  the same, each a pass over the whole shard\n");
  std::printf(
      "# mpi     MPI_Reduce_scatter_block, scalar AdamW with unscale and bf16, MPI_Allgather; no overflow check, norm, "
      "clip, "
      "zeros\n");
}

bool report(Options const& options, std::vector<Entry> const& entries) {
  double const fused = median(entries[0].seconds);
  bool holds = true;
  nlohmann::json line{
      {"program", "zero_step_perf"}, {"parameters", options.workload.count()}, {"rounds", options.rounds}};
  std::printf("# %-8s %10s %10s %8s %6s\n", "side", "median ms", "best ms", "x fused", "bar");
  for (Entry const& entry : entries) {
    double const ratio = median(entry.seconds) / fused;
    double const bar = entry.name == "passes" ? options.min_passes : entry.name == "mpi" ? options.min_mpi : 0;
    bool const good = ratio >= bar;
    holds = holds && good;
    std::printf("  %-8s %10.1f %10.1f %8.2f", entry.name.c_str(), median(entry.seconds) * 1e3,
                *std::ranges::min_element(entry.seconds) * 1e3, ratio);
    if (bar > 0) {
      std::printf(" %6.2f  %s\n", bar, good ? "PASS" : "FAIL");
    } else {
      std::printf("\n");
    }
    for (auto const& [name, seconds] : entry.parts)
      std::printf("      %-20s %8.1f ms\n", name.c_str(), median(seconds) * 1e3);
    line[entry.name] = {{"ms", median(entry.seconds) * 1e3}, {"ratio", ratio}};
  }
  if (entries.size() < 3) std::printf("# mpi: not measured; start it with mpirun -np N --bind-to core\n");
  std::fflush(stdout);
  if (options.json.empty()) return holds;
  std::ofstream file(options.json, std::ios::app);
  file << line.dump() << '\n';
  if (!file.flush()) throw Error(ErrorCode::system, "cannot write " + options.json);
  return holds;
}

int run(Communicator& world, Options const& options) {
  verify(world, options.workload, true);
  verify(world, options.workload, false);
  if (world.rank() == 0) print_head(world, options);
  std::vector<Entry> entries = sides_of(world, options.workload);
  measure(world, options, entries);
  int holds = 1;
  if (world.rank() == 0) holds = report(options, entries) ? 1 : 0;
  world.broadcast(std::span(&holds, 1), 0).wait();
  if (holds == 0 && world.rank() == 0) std::fprintf(stderr, "zero_step_perf: a ratio is below its bar\n");
  return holds != 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  weft::perf::Options options;
  weft::perf::Workload& workload = options.workload;
  weft::perf::CommandLine line(
      "zero_step_perf",
      "Reductions, update and gathers of a ZeRO-1 step: fused, in separate passes, and with blocking MPI calls");
  line.add("-t,--ranks", options.ranks, "local ranks, unless mpirun started them", {1, weft::kMostLocalRanks});
  line.add("--tensors", workload.tensors, "tensors of a million parameters", {1, 10000});
  line.add("--bucket-mib", workload.bucket_mib, "MiB of gradients in a bucket", {1, 1 << 20});
  line.add("--rounds", options.rounds, "interleaved rounds", {1, 10000});
  line.add("--min-passes", options.min_passes, "bar of the separate passes' time over the fused; 0: none");
  line.add("--min-mpi", options.min_mpi, "bar of MPI's; 0: none");
  line.add("--json", options.json, "file to append a JSON line to");
  if (auto const code = line.parse(argc, argv)) return *code;
  weft::LaunchOptions launch;
  launch.ranks = options.ranks;
  return weft::launch(launch, [&](weft::Communicator& world) { return weft::perf::run(world, options); });
}
