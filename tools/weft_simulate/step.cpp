#include "weft_simulate/step.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>

#include "simulation/simulated_ranks.hpp"
#include "weft/bucketer.hpp"
#include "weft_simulate/report.hpp"

namespace weft::simulate_tool {
namespace {

constexpr int kSteps = 2;  // the first one begins with ranks that are not yet together

/// A line on standard error, where that is a terminal, of how much of all ranks' backward passes is done.
class Progress {
 public:
  explicit Progress(std::uint64_t gradients) : gradients_(gradients), shown_(isatty(STDERR_FILENO) != 0) {}
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

  void gradient_is_ready() {
    constexpr std::uint64_t kBetween = 1024;  // some ms
    auto const done = ++done_;
    if (shown_ && done % kBetween == 0)
      fmt::print(stderr, "\r\033[K{:.0f} %", 100.0 * static_cast<double>(done) / static_cast<double>(gradients_));
  }

 private:
  std::uint64_t const gradients_;
  bool const shown_;
  std::atomic<std::uint64_t> done_{0};
};

OverlapReport take_step(sim::SimulatedRank& self, Bucketer& buckets, TrainingStep const& step, Progress& progress) {
  auto const begin = self.now();
  std::vector<Interval> compute{self.compute(sim::from_seconds(step.forward_s * step.layers))};
  for (std::size_t layer = buckets.tensor_count(); layer-- > 0;) {
    compute.push_back(self.compute(sim::from_seconds(step.backward_s)));
    buckets.mark_ready(layer);
    progress.gradient_is_ready();
  }
  buckets.finish();
  return OverlapReport::build({begin, self.now()}, compute, buckets.timings());
}

BucketerOptions bucketer_options(TrainingStep const& step) {
  BucketerOptions options;
  options.limits.bytes = step.bucket_bytes;
  options.limits.first_bytes = std::min(options.limits.first_bytes, step.bucket_bytes);
  options.limits.last_bytes = std::min(options.limits.last_bytes, step.bucket_bytes);
  options.overlap = step.overlap;
  options.rebuild = false;  // gradients come in the plan's order from the beginning
  return options;
}

}  // namespace

// Where all end together, since all wait for one, that one is it: it computed the longest.
std::size_t StepResult::slowest() const {
  constexpr double kTogether = 0.99;
  constexpr double kLonger = 1 + 1e-9;  // than rounding
  auto const longest =
      std::max_element(ranks.begin(), ranks.end(), [](auto const& a, auto const& b) { return a.step_ms < b.step_ms; });
  auto slowest = longest;
  for (auto each = ranks.begin(); each != ranks.end(); ++each) {
    if (each->step_ms < longest->step_ms * kTogether) continue;
    if (each->compute_ms > slowest->compute_ms * kLonger) slowest = each;
  }
  return static_cast<std::size_t>(slowest - ranks.begin());
}

StepResult simulate_step(Settings const& settings) {
  auto const& step = *settings.step;
  sim::Options options;
  options.carries_data = false;
  options.seed = settings.seed;
  options.jitter = sim::from_seconds(settings.jitter_s);
  options.stragglers = settings.stragglers;
  if (settings.reduction_bytes_per_s > 0) options.reduction_s_per_byte = 1 / settings.reduction_bytes_per_s;
  std::vector<TensorSpec> const layers(static_cast<std::size_t>(step.layers), {step.layer_bytes / sizeof(float)});
  StepResult result;
  result.ranks.resize(static_cast<std::size_t>(settings.topology.ranks));
  sim::RankOptions how;
  how.hierarchical = settings.step->by_hosts;
  Progress progress(std::uint64_t{kSteps} * layers.size() * result.ranks.size());
  auto const outcome = sim::simulate_ranks(settings.topology, options, how, [&](sim::SimulatedRank& self) {
    Bucketer buckets(self.world(), layers, bucketer_options(step));
    auto& report = result.ranks[static_cast<std::size_t>(self.world().rank())];
    for (int i = 0; i < kSteps; ++i) report = take_step(self, buckets, step, progress);
  });
  outcome.rethrow();
  result.messages = outcome.messages;
  result.bytes = outcome.bytes;
  return result;
}

void print_step(std::FILE* out, Settings const& settings, StepResult const& result) {
  auto const& step = *settings.step;
  auto const slowest = result.slowest();
  auto const& report = result.ranks[slowest];
  print_network(out, settings, "step");
  fmt::print(out,
             "# {} layers of {} bytes of f32 gradients, {:.3f} ms forward and {:.3f} ms backward each, buckets of "
             "{} bytes{}\n",
             step.layers, step.layer_bytes, step.forward_s * 1e3, step.backward_s * 1e3, step.bucket_bytes,
             step.overlap ? "" : ", without overlap");
  fmt::print(
      out, "# {}\n",
      step.by_hosts ? "combined inside hosts first, as real jobs do (--flat: by all ranks alike)" : "all ranks alike");
  fmt::print(out, "{}", format_overlap_report(report, fmt::format("rank {}, the slowest, in virtual time", slowest)));
  fmt::print(out,
             "# {:.1f} % of communication hidden, {:.1f} % of what could be; the step takes {:.3f} times its bound\n",
             report.hidden_percent(), report.hidden_of_hideable_percent(), report.step_ms / report.bound_ms);
}

nlohmann::ordered_json step_json(Settings const& settings, StepResult const& result) {
  auto const& step = *settings.step;
  auto const slowest = result.slowest();
  auto const& report = result.ranks[slowest];
  nlohmann::ordered_json json{{"topology", topology_json(settings)},
                              {"seed", settings.seed},
                              {"layers", step.layers},
                              {"layer_bytes", step.layer_bytes},
                              {"forward_s", step.forward_s},
                              {"backward_s", step.backward_s},
                              {"bucket_bytes", step.bucket_bytes},
                              {"overlap", step.overlap},
                              {"by_hosts", step.by_hosts},
                              {"slowest_rank", slowest},
                              {"step_ms", report.step_ms},
                              {"compute_ms", report.compute_ms},
                              {"communication_ms", report.communication_ms},
                              {"hidden_ms", report.hidden_ms},
                              {"exposed_ms", report.exposed_ms},
                              {"hideable_ms", report.hideable_ms},
                              {"bound_ms", report.bound_ms},
                              {"messages", result.messages},
                              {"bytes_on_wire", result.bytes},
                              {"buckets", nlohmann::ordered_json::array()},
                              {"rank_step_ms", nlohmann::ordered_json::array()}};
  for (auto const& bucket : report.buckets) {
    json["buckets"].push_back({{"bytes", bucket.bytes},
                               {"ready_ms", bucket.ready_ms},
                               {"started_ms", bucket.started_ms},
                               {"finished_ms", bucket.finished_ms},
                               {"exposed_ms", bucket.exposed_ms}});
  }
  for (auto const& rank : result.ranks) json["rank_step_ms"].push_back(rank.step_ms);
  return json;
}

}  // namespace weft::simulate_tool
