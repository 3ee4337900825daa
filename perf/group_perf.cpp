// Compares many small collectives, in a Group or on a fused stream, with one flat call of the same bytes and with the
// same calls one by one, in interleaved rounds of one run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "common/median.hpp"
#include "weft/weft.hpp"

namespace {

using weft::perf::median;

using Sizes = std::vector<std::size_t>;

struct Options {
  int ranks = 2;
  int rounds = 15;
  std::size_t calls = 980;
  Sizes parts{1024, 4096, 16384};  // bytes of a rank's part
  std::size_t fuse_bytes = std::size_t{25} << 20;
  double min_grouped = 0.9;
  double min_fused = 0.8;
  std::size_t judge_from = 4096;
  bool gradients = true;
  std::string json;
};

/// Elements of ResNet-50's 161 parameters, in the order of the network (He et al. 2015, table 1, v1.5 as torchvision
/// has it: 25'557'032 in all).
Sizes resnet50() {
  Sizes sizes{64 * 3 * 49, 64, 64};
  std::size_t in = 64;
  std::size_t const blocks[] = {3, 4, 6, 3};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    std::size_t const width = std::size_t{64} << stage;
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      for (std::size_t const n :
           {in * width, width, width, width * width * 9, width, width, width * width * 4, width * 4, width * 4})
        sizes.push_back(n);
      if (block == 0) sizes.insert(sizes.end(), {in * width * 4, width * 4, width * 4});
      in = width * 4;
    }
  }
  sizes.insert(sizes.end(), {std::size_t{2048} * 1000, 1000});
  return sizes;
}

/// Elements of BERT-base's 199 parameters (Devlin et al. 2018: 12 layers of width 768, 30'522 words: 109'482'240).
Sizes bert_base() {
  constexpr std::size_t kWidth = 768;
  Sizes sizes{30522 * kWidth, 512 * kWidth, 2 * kWidth, kWidth, kWidth};
  for (int layer = 0; layer < 12; ++layer) {
    for (int projection = 0; projection < 4; ++projection) sizes.insert(sizes.end(), {kWidth * kWidth, kWidth});
    sizes.insert(sizes.end(), {kWidth, kWidth});
    sizes.insert(sizes.end(), {4 * kWidth * kWidth, 4 * kWidth, 4 * kWidth * kWidth, kWidth, kWidth, kWidth});
  }
  sizes.insert(sizes.end(), {kWidth * kWidth, kWidth});
  return sizes;
}

weft::BufferView slice(weft::Buffer const& buffer, std::size_t first, std::size_t count) {
  return {static_cast<float*>(buffer.view().data) + first, count, weft::DataType::f32};
}

/// The gradients and results of one setting. Every rank has one.
class Bench {
 public:
  Bench(weft::Communicator& world, Options const& options, bool symmetric, std::size_t send, std::size_t recv)
      : world_(world), options_(options), send_(make(symmetric, send)), recv_(make(symmetric, recv)) {}

  /// The median seconds of each of `ways`, on the slowest rank; the ways take turns in every round. Inputs are written
  /// before each call, and results read after it.
  std::vector<double> measure(std::vector<std::function<void()>> const& ways) {
    std::vector<std::vector<double>> seconds(ways.size());
    for (int round = -2; round < options_.rounds; ++round) {
      for (std::size_t i = 0; i < ways.size(); ++i) {
        auto const way = (i + static_cast<std::size_t>(round + 2)) % ways.size();
        std::fill_n(static_cast<float*>(send_.view().data), send_.count(), static_cast<float>(world_.rank() + round));
        world_.barrier();
        auto const start = std::chrono::steady_clock::now();
        ways[way]();
        double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        auto const* const results = static_cast<float const*>(recv_.view().data);
        checksum_ += std::accumulate(results, results + recv_.count(), 0.0F);
        weft::BufferView const one{&spent, 1, weft::DataType::f64};
        world_.all_reduce(one, one, weft::ReduceOp::max);
        if (round >= 0) seconds[way].push_back(spent);
      }
    }
    std::vector<double> medians;
    for (auto& each : seconds) medians.push_back(median(each));
    return medians;
  }

  [[nodiscard]] weft::Buffer const& send() const { return send_; }
  [[nodiscard]] weft::Buffer const& recv() const { return recv_; }

 private:
  weft::Buffer make(bool symmetric, std::size_t count) {
    return symmetric ? world_.allocate(count, weft::DataType::f32) : weft::Buffer::host(count, weft::DataType::f32);
  }

  weft::Communicator& world_;
  Options const& options_;
  weft::Buffer send_;
  weft::Buffer recv_;
  float checksum_ = 0;  // makes the reads of results necessary
};

class Report {
 public:
  Report(weft::Communicator const& world, Options const& options) : world_(world), options_(options) {
    if (world.rank() != 0) return;
    std::printf("# %d ranks, medians of %d interleaved rounds; speed: time of the flat call over time of the many\n",
                world.size(), options.rounds);
    std::printf("# %-46s %-9s %12s %12s %12s %8s %8s\n", "", "memory", "flat us", "merged us", "one by one", "speed",
                "bar");
  }

  void add(std::string const& name, bool symmetric, std::vector<double> const& seconds, double bar, bool judged) {
    auto const speed = seconds[0] / seconds[1];
    if (judged && bar > 0 && speed < bar) passed_ = false;
    if (world_.rank() != 0) return;
    auto const* const memory = symmetric ? "symmetric" : "private";
    std::printf("  %-46s %-9s %12.1f %12.1f %12.1f %8.3f %8s\n", name.c_str(), memory, seconds[0] * 1e6,
                seconds[1] * 1e6, seconds[2] * 1e6, speed, judged ? std::to_string(bar).substr(0, 4).c_str() : "-");
    std::fflush(stdout);
    if (options_.json.empty()) return;
    nlohmann::json const line{{"program", "group_perf"},
                              {"name", name},
                              {"memory", memory},
                              {"ranks", world_.size()},
                              {"flat_us", seconds[0] * 1e6},
                              {"merged_us", seconds[1] * 1e6},
                              {"one_by_one_us", seconds[2] * 1e6},
                              {"speed", speed}};
    std::ofstream file(options_.json, std::ios::app);
    file << line.dump() << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + options_.json);
  }

  [[nodiscard]] bool passed() const { return passed_; }

 private:
  weft::Communicator const& world_;
  Options const& options_;
  bool passed_ = true;
};

void grouped_reduce_scatters(weft::Communicator& world, Options const& options, Report& report, bool symmetric,
                             std::size_t part_bytes) {
  auto const part = part_bytes / sizeof(float);
  auto const whole = part * static_cast<std::size_t>(world.size());
  Bench bench(world, options, symmetric, whole * options.calls, part * options.calls);
  auto const each = [&] {
    for (std::size_t i = 0; i < options.calls; ++i) {
      world.reduce_scatter(slice(bench.send(), i * whole, whole), slice(bench.recv(), i * part, part),
                           weft::ReduceOp::sum);
    }
  };
  auto const flat = [&] { world.reduce_scatter(bench.send().view(), bench.recv().view(), weft::ReduceOp::sum); };
  auto const grouped = [&] {
    weft::Group group(world);
    each();
    group.end();
  };
  auto const seconds = bench.measure({flat, grouped, each});
  report.add(std::to_string(options.calls) + " reduce_scatters of " + std::to_string(part_bytes) + " B parts, grouped",
             symmetric, seconds, options.min_grouped, part_bytes >= options.judge_from);
}

void fused_gradients(weft::Communicator& world, Options const& options, Report& report, bool symmetric,
                     std::string const& name, Sizes const& sizes) {
  auto const total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  Bench bench(world, options, symmetric, total, total);
  auto const plain = weft::Stream::cpu();
  auto const fused = weft::Stream::cpu();
  world.fuse(fused, options.fuse_bytes);
  auto const each = [&](weft::Stream const& stream) {
    std::vector<weft::Work> works;
    auto first = total;  // gradients come last layer first
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      first -= *size;
      works.push_back(world.all_reduce(slice(bench.send(), first, *size), slice(bench.recv(), first, *size),
                                       weft::ReduceOp::sum, {.stream = stream}));
    }
    for (auto const& work : works) work.wait();
  };
  auto const flat = [&] {
    world.all_reduce(bench.send().view(), bench.recv().view(), weft::ReduceOp::sum, {.stream = plain}).wait();
  };
  auto const seconds = bench.measure({flat, [&] { each(fused); }, [&] { each(plain); }});
  report.add(name + ", " + std::to_string(sizes.size()) + " all_reduces, fused", symmetric, seconds, options.min_fused,
             true);
  world.fuse(fused, 0);
}

/// Whether the first rank can write to `path`, or it is empty; where it cannot, that rank throws, and the others have
/// nothing to say.
bool can_write(weft::Communicator& world, std::string const& path) {
  if (path.empty()) return true;
  int writable = world.rank() != 0 || std::ofstream(path, std::ios::app) ? 1 : 0;
  world.broadcast(std::span(&writable, 1), 0);
  if (writable != 0 || world.rank() != 0) return writable != 0;
  throw weft::Error(weft::ErrorCode::invalid_argument, "--json: cannot write " + path);
}

int run(weft::Communicator& world, Options const& options) {
  if (!can_write(world, options.json)) return 0;
  Report report(world, options);
  for (bool const symmetric : {true, false}) {
    for (auto const part : options.parts) grouped_reduce_scatters(world, options, report, symmetric, part);
    if (!options.gradients) continue;
    fused_gradients(world, options, report, symmetric, "ResNet-50's gradients", resnet50());
    fused_gradients(world, options, report, symmetric, "BERT-base's gradients", bert_base());
  }
  if (!report.passed() && world.rank() == 0) std::fprintf(stderr, "group_perf: a speed is below its bar\n");
  return report.passed() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  weft::perf::CommandLine line("group_perf",
                               "Many small collectives, grouped or fused, beside one flat call of the same bytes");
  line.add("-t,--ranks", options.ranks, "local ranks, unless mpirun or torchrun started them",
           {1, weft::kMostLocalRanks});
  line.add("--rounds", options.rounds, "interleaved rounds", {1, 10000});
  line.add("-n,--calls", options.calls, "reduce_scatters in a group", {1, 100000});
  line.add_bytes("--parts", options.parts, "bytes of a rank's part (K M G), one or several; multiples of 4");
  line.add_bytes("--fuse-bytes", options.fuse_bytes, "bytes up to which a fused stream merges (K M G)");
  line.add("--min-grouped", options.min_grouped, "bar of the groups; 0: none");
  line.add("--min-fused", options.min_fused, "bar of the fused streams; 0: none");
  line.add_bytes("--judge-from", options.judge_from, "smallest part that --min-grouped applies to (K M G)");
  line.add_choice("--gradients", options.gradients, "0/1: also all_reduces of two networks' gradients, fused");
  line.add("--json", options.json, "file to append one JSON line per row to");
  if (auto const code = line.parse(argc, argv)) return *code;
  for (auto const part : options.parts) {
    if (part != 0 && part % sizeof(float) == 0) continue;
    std::fprintf(stderr, "group_perf: --parts %zu is not a multiple of 4 above 0\n", part);
    return 2;
  }
  weft::LaunchOptions launch;
  launch.ranks = options.ranks;
  return weft::launch(launch, [&](weft::Communicator& world) { return run(world, options); });
}
