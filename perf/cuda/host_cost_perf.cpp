// Measures the host's time to enqueue a call on a GPU: Weft's own part, over function tables that do nothing; and on a
// GPU the whole call next to NCCL's own call, on the same stream and communicator, in interleaved rounds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "collectives/device_access.hpp"
#include "collectives/nccl/nccl_backend.hpp"
#include "collectives/nccl/nccl_factory.hpp"
#include "common/command_line.hpp"
#include "common/median.hpp"
#include "common/weft_calls.hpp"
#include "cuda/gpu.hpp"
#include "cuda/instant_tables.hpp"
#include "runtime/cuda/memory_pool.hpp"
#include "weft/error.hpp"
#include "weft/group.hpp"
#include "weft/launch.hpp"

namespace {

using namespace weft;
using perf::median;
using Clock = std::chrono::steady_clock;

constexpr double kBar = 1e-6;  // seconds per call more than NCCL's own call
constexpr int kGrouped = 8;
constexpr std::size_t kElements = 256;

struct Settings {
  int ranks = 1;
  int rounds = 30;
  int calls = 500;
  bool on_gpu = false;
  bool share_gpus = false;
  std::string json;
};

/// Both ways of enqueueing the same call; `nccl` is empty where NCCL is not compared.
struct Row {
  std::string name;
  std::function<void()> weft;
  std::function<void()> nccl;
  int calls = 1;  ///< in one of each
};

/// Seconds per call for which the calling thread is busy.
double time_batch(Stream& stream, int batch, int calls, std::function<void()> const& enqueue) {
  auto const start = Clock::now();
  for (int i = 0; i < batch; ++i) enqueue();
  auto const seconds = std::chrono::duration<double>(Clock::now() - start).count();
  stream.synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the watch takes away what is through
  return seconds / batch / calls;
}

/// One rank's streams, buffers and calls.
class Bench {
 public:
  Bench(Settings const& settings, nccl::Libraries const& libraries, Communicator& world)
      : settings_(settings),
        world_(world),
        stream_(std::make_shared<cuda::CudaStream>(
            cuda::StreamOptions{.device = libraries.device, .high_priority = true}, *libraries.cuda)),
        send_(allocate(libraries)),
        recv_(allocate(libraries)) {
    DeviceAccess::connect(world, *nccl::factory_of(libraries));
    if (!settings.on_gpu) return;
    auto& backend = dynamic_cast<nccl::NcclBackend&>(*DeviceAccess::backend(world));
    nccl_.emplace(backend.communicator(), stream_);
  }

  [[nodiscard]] std::vector<Row> rows() {
    using perf::Op;
    std::vector<Row> rows;
    for (auto const what : {Op::all_reduce, Op::reduce_scatter, Op::all_gather, Op::broadcast})
      rows.push_back(row(what));
    if (world_.size() > 1) rows.push_back(row(Op::send_recv));
    auto const one = rows.front();
    auto grouped = Row{fmt::format("group of {} all_reduce", kGrouped), [this] { run_group(); }, {}, kGrouped};
    if (nccl_) grouped.nccl = nccl_->grouped(one.nccl, kGrouped);
    rows.push_back(std::move(grouped));
    return rows;
  }

  [[nodiscard]] nlohmann::json measure(Row const& row) {
    std::vector<double> weft;
    std::vector<double> nccl;
    std::vector<double> more;  // differences within a round, because what slows the machine for a while slows both
    for (int round = -1; round < settings_.rounds; ++round) {
      world_.barrier();
      auto const batch = settings_.calls / row.calls;
      auto const ours = time_batch(stream_, batch, row.calls, row.weft);
      auto const theirs = row.nccl ? time_batch(stream_, batch, row.calls, row.nccl) : 0;
      if (round < 0) continue;  // this round only makes connections and pages code in
      weft.push_back(ours);
      nccl.push_back(theirs);
      more.push_back(ours - theirs);
    }
    nlohmann::json line{{"program", "cuda_host_cost_perf"},
                        {"name", row.name},
                        {"ranks", world_.size()},
                        {"calls", settings_.calls},
                        {"tables", row.nccl ? "gpu" : "do nothing"},
                        {"weft_us", median(weft) * 1e6},
                        {"bar_us", kBar * 1e6}};
    if (row.nccl) line["nccl_us"] = median(nccl) * 1e6;
    auto const own = median(more);
    line["own_us"] = own * 1e6;
    line["holds"] = own <= kBar;
    return line;
  }

 private:
  static Buffer allocate(nccl::Libraries const& libraries) {
    return cuda::allocate(kElements * kMostLocalRanks, DataType::f32, libraries.device, *libraries.cuda);
  }

  [[nodiscard]] perf::Operands operands(perf::Case const& what) const {
    auto const counts = what.counts(kElements, world_.size());
    auto const room = what.room(counts);
    return what.operands(send_.view().slice(0, room), recv_.view().slice(0, room), counts, place(), false);
  }
  [[nodiscard]] perf::Place place() const { return {world_.rank(), world_.size(), 0}; }

  [[nodiscard]] Row row(perf::Op op) {
    auto const what = perf::make_case(op);
    auto const on = operands(*what);
    perf::CallOptions const options{ReduceOp::sum, 0, {stream_, {}}};
    Row row{
        what->name(), [this, op, on, options] { static_cast<void>(perf::start_weft(op, world_, on, options)); }, {}};
    if (nccl_) row.nccl = nccl_->call(*what, on, ReduceOp::sum, place());
    return row;
  }

  void run_group() {
    auto const on = BufferView(recv_.view()).slice(0, kElements);
    Group group(world_, {.stream = stream_});
    for (int i = 0; i < kGrouped; ++i) static_cast<void>(world_.all_reduce(on, on, ReduceOp::sum));
    static_cast<void>(group.end());
  }

  Settings const& settings_;
  Communicator& world_;
  Stream stream_;
  Buffer send_;
  Buffer recv_;
  std::optional<perf::NcclCalls> nccl_;
};

void print_head(Settings const& settings, std::string const& gpu) {
  if (settings.on_gpu) {
    fmt::print("# host time of a call on {} beside NCCL's own, {} ranks\n", gpu, settings.ranks);
  } else {
    fmt::print(
        "# Weft's own host time of a call, {} ranks: CUDA's and NCCL's functions do nothing, so what they take "
        "(an event record among it) is not in here, nor is a GPU\n",
        settings.ranks);
  }
  fmt::print("# {:<24} {:>10} {:>10} {:>10}  bar {:.1f} us\n", "call", "weft us", "nccl us", "own us", kBar * 1e6);
}

void print_row(nlohmann::json const& line) {
  auto const nccl = line.contains("nccl_us") ? fmt::format("{:.3f}", line["nccl_us"].get<double>()) : "-";
  fmt::print("{:<26} {:>10.3f} {:>10} {:>10.3f}  {}\n", line["name"].get<std::string>(), line["weft_us"].get<double>(),
             nccl, line["own_us"].get<double>(), line["holds"].get<bool>() ? "PASS" : "FAIL");
  std::fflush(stdout);
}

int run(Settings const& settings, Communicator& world) {
  perf::Options options;
  options.share_gpus = settings.share_gpus;
  auto const gpu = settings.on_gpu ? perf::open_gpu(options, *world.options().config, world.rank(), world.size())
                                   : perf::Gpu{perf::instant_libraries(), "", "no GPU"};
  Bench bench(settings, gpu.libraries, world);
  if (world.rank() == 0) print_head(settings, gpu.name);
  std::ofstream file;
  if (world.rank() == 0 && !settings.json.empty()) file.open(settings.json, std::ios::app);
  int code = 0;
  for (auto const& row : bench.rows()) {
    auto const line = bench.measure(row);
    if (world.rank() != 0) continue;
    print_row(line);
    if (!line["holds"].get<bool>()) code = 1;
    if (!settings.json.empty() && !(file << line.dump() << std::endl))
      throw Error(ErrorCode::system, "--json: cannot write " + settings.json);
  }
  world.barrier();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  perf::CommandLine line("cuda_host_cost_perf",
                         "Host time of calls on a GPU: Weft's own, and with --gpu beside NCCL's own calls");
  line.add("-t,--ranks", settings.ranks, "local ranks", {1, kMostLocalRanks});
  line.add("--rounds", settings.rounds, "interleaved rounds; the median counts", {1, 10'000});
  line.add("--calls", settings.calls, "calls a round, fewer than a GPU's queue holds", {kGrouped, 1000});
  line.add_flag("--gpu", settings.on_gpu, "measure on a GPU; without: over tables that do nothing");
  line.add_flag("--share-gpus", settings.share_gpus, "ranks may outnumber GPUs");
  line.add("--json", settings.json, "file to append one JSON line per row to");
  if (auto const code = line.parse(argc, argv)) return *code;
  LaunchOptions options;
  options.ranks = settings.ranks;
  return launch(options, [&](Communicator& world) { return run(settings, world); });
}
