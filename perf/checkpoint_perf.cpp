// Measures asynchronous saves of a model of which every rank has a full copy: how fast they are, how long they block
// the caller, and how much training steps slow down during a save.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/command_line.hpp"
#include "common/median.hpp"
#include "weft/weft.hpp"

namespace weft::perf {
namespace {

struct Options {
  std::size_t mib = 512;
  int ranks = 1;
  int rounds = 5;
  std::string folder = "build/checkpoint_perf";
  std::string json;
};

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Tensors of 4 MiB, as layers have.
std::vector<CheckpointTensor> tensors_of(BufferView const& model) {
  constexpr std::size_t kElements = std::size_t{1} << 20U;
  std::vector<CheckpointTensor> tensors;
  for (std::size_t first = 0; first < model.count; first += kElements) {
    tensors.push_back(
        {"layers." + std::to_string(first / kElements) + ".weight", {1024, 1024}, 0, model.slice(first, kElements)});
  }
  return tensors;
}

/// A stand-in for a training step: an update of parameters other than the saved ones, and a meeting of all ranks.
class Step {
 public:
  explicit Step(Communicator& world)
      : world_(world),
        parameters_(Buffer::host(kCount, DataType::f32)),
        gradients_(Buffer::host(kCount, DataType::f32)),
        optimizer_({parameters_.view()}, AdamWOptions{}) {}

  double operator()() {
    auto const start = Clock::now();
    optimizer_.begin_step();
    optimizer_.update(0, gradients_.view());
    world_.barrier();
    return since(start);
  }

 private:
  static constexpr std::size_t kCount = 10'000'000;
  Communicator& world_;
  Buffer parameters_, gradients_;
  Optimizer optimizer_;
};

struct Times {
  std::vector<double> blocked;  ///< save(): the caller waits
  std::vector<double> durable;  ///< until the save has replaced the one before, nothing else running
  std::vector<double> step;     ///< alone
  std::vector<double> during;   ///< beside a save
  std::vector<double> beside;   ///< of a save beside steps, until it is done
};

bool all_saving(Communicator& world, CheckpointSaver const& saver) {
  float saving = saver.saving() ? 1 : 0;
  world.all_reduce(std::span<float const>(&saving, 1), std::span<float>(&saving, 1), ReduceOp::min).wait();
  return saving != 0;
}

void one_round(Communicator& world, CheckpointSaver& saver, std::span<CheckpointTensor const> mine, Step& step,
               Times& times) {
  world.barrier();
  auto start = Clock::now();
  saver.save(mine, {});
  times.blocked.push_back(since(start));
  saver.wait();
  times.durable.push_back(since(start));
  for (int i = 0; i < 10; ++i) times.step.push_back(step());
  world.barrier();
  start = Clock::now();
  saver.save(mine, {});
  while (all_saving(world, saver)) times.during.push_back(step());
  saver.wait();
  times.beside.push_back(since(start));
}

int run(Communicator& world, Options const& options) {
  Buffer const model = Buffer::host(options.mib << 18U, DataType::f32);
  std::span<float> const values = model.as<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1021) * 1e-3F;
  std::vector<CheckpointTensor> const mine = share_of(tensors_of(model.view()), world.rank(), world.size());
  CheckpointSaver saver(world, options.folder);
  Step step(world);
  Times times;
  Times first;
  one_round(world, saver, mine, step, first);  // not counted: it touches pages for the first time
  for (int round = 0; round < options.rounds; ++round) one_round(world, saver, mine, step, times);
  if (world.rank() != 0) return 0;
  double const gb = static_cast<double>(model.view().bytes()) * 1e-9;
  double const alone = median(times.step);
  double const during = median(times.during);
  std::printf("# %zu MiB, %d ranks, %d rounds, saved into %s\n", options.mib, world.size(), options.rounds,
              options.folder.c_str());
  std::printf("  save() returns after   %8.1f ms  %6.2f GB/s\n", median(times.blocked) * 1e3,
              gb / median(times.blocked));
  std::printf("  on disk after          %8.1f ms  %6.2f GB/s\n", median(times.durable) * 1e3,
              gb / median(times.durable));
  std::printf("  on disk beside steps   %8.1f ms  %6.2f GB/s\n", median(times.beside) * 1e3, gb / median(times.beside));
  std::printf("  a step alone           %8.2f ms\n", alone * 1e3);
  std::printf("  a step beside a save   %8.2f ms  %6.2f x, %zu steps\n", during * 1e3, during / alone,
              times.during.size());
  std::fflush(stdout);
  if (options.json.empty()) return 0;
  std::ofstream file(options.json, std::ios::app);
  file << nlohmann::json{{"program", "checkpoint_perf"},
                         {"bytes", model.view().bytes()},
                         {"ranks", world.size()},
                         {"blocked_s", median(times.blocked)},
                         {"durable_s", median(times.durable)},
                         {"beside_s", median(times.beside)},
                         {"step_s", alone},
                         {"step_beside_s", during}}
              .dump()
       << '\n';
  if (!file.flush()) throw Error(ErrorCode::system, "cannot write " + options.json);
  return 0;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  weft::perf::Options options;
  weft::perf::CommandLine line("checkpoint_perf",
                               "Asynchronous checkpoint saves: their speed, and what they cost training");
  line.add("--mib", options.mib, "MiB of f32 parameters", {4, 1 << 20});
  line.add("-t,--ranks", options.ranks, "local ranks, unless mpirun started them", {1, weft::kMostLocalRanks});
  line.add("--rounds", options.rounds, "saves alone, and as many beside steps", {1, 10000});
  line.add("--folder", options.folder, "where to save; what is left there is a checkpoint");
  line.add("--json", options.json, "file to append a JSON line to");
  if (auto const code = line.parse(argc, argv)) return *code;
  weft::LaunchOptions launch;
  launch.ranks = options.ranks;
  return weft::launch(launch, [&](weft::Communicator& world) { return weft::perf::run(world, options); });
}
