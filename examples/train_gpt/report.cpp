#include "report.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace train_gpt {
namespace {

using Json = nlohmann::json;
using weft::OverlapReport;

/// Median over the counted steps of when the first bucket was ready: computation that can hide nothing.
double head_ms(RunRecord const& run) {
  std::vector<double> heads;
  for (StepRecord const& step : run.counted()) {
    double head = step.overlap.compute_ms;
    for (weft::BucketOverlap const& bucket : step.overlap.buckets) {
      head = std::min(head, bucket.ready_ms);
    }
    heads.push_back(head);
  }
  if (heads.empty()) {
    return 0.0;
  }
  std::nth_element(heads.begin(), heads.begin() + static_cast<std::ptrdiff_t>(heads.size() / 2), heads.end());
  return heads[heads.size() / 2];
}

Json json_of(weft::BucketOverlap const& bucket) {
  return {{"bytes", bucket.bytes},
          {"ready_ms", bucket.ready_ms},
          {"started_ms", bucket.started_ms},
          {"finished_ms", bucket.finished_ms},
          {"exposed_ms", bucket.exposed_ms}};
}

Json json_of(StepRecord const& step) {
  OverlapReport const& overlap = step.overlap;
  return {{"step", step.step},
          {"loss", step.loss},
          {"step_ms", overlap.step_ms},
          {"compute_ms", overlap.compute_ms},
          {"communication_ms", overlap.communication_ms},
          {"hidden_ms", overlap.hidden_ms},
          {"exposed_ms", overlap.exposed_ms},
          {"idle_ms", overlap.idle_ms},
          {"hideable_ms", overlap.hideable_ms},
          {"hidden_percent", overlap.hidden_percent()},
          {"bound_ms", overlap.bound_ms}};
}

/// A figure of a run, the same in the table and in the report.
struct Figure {
  char const* column;
  char const* key;
  int decimals;
  double (*of)(RunSummary const&);
};

template <double OverlapReport::*figure>
double median_of(RunSummary const& summary) {
  return summary.run->median(figure);
}

double hidden_percent(RunSummary const& summary) {
  return summary.run->hidden_percent();
}
double tokens_per_s(RunSummary const& summary) {
  return summary.run->tokens_per_second();
}
double vs_weft(RunSummary const& summary) {
  return summary.vs_weft;
}
double bound_ms(RunSummary const& summary) {
  return summary.bound_ms;
}
double step_over_bound(RunSummary const& summary) {
  return summary.run->median(&OverlapReport::step_ms) / summary.bound_ms;
}

constexpr std::array kFigures{
    Figure{"step ms", "step_ms", 2, median_of<&OverlapReport::step_ms>},
    Figure{"compute ms", "compute_ms", 2, median_of<&OverlapReport::compute_ms>},
    Figure{"communication ms", "communication_ms", 2, median_of<&OverlapReport::communication_ms>},
    Figure{"hidden %", "hidden_percent", 1, hidden_percent},
    Figure{"exposed ms", "exposed_ms", 2, median_of<&OverlapReport::exposed_ms>},
    Figure{"tokens/s", "tokens_per_s", 0, tokens_per_s},
    Figure{"vs weft", "vs_weft", 3, vs_weft},
    Figure{"bound ms", "bound_ms", 2, bound_ms},
    Figure{"step/bound", "step_over_bound", 3, step_over_bound},
};

int width_of(Figure const& figure) {
  return std::max(8, static_cast<int>(std::string_view(figure.column).size())) + 1;
}

Json json_of(RunSummary const& summary) {
  RunRecord const& run = *summary.run;
  Json json{{"name", run.name},
            {"link", run.link},
            {"ranks", run.ranks},
            {"hidden_ms", run.median(&OverlapReport::hidden_ms)},
            {"hideable_ms", run.median(&OverlapReport::hideable_ms)},
            {"baseline_compute_ms", summary.baseline_compute_ms},
            {"skipped_steps", run.skipped_steps},
            {"losses", Json::array()},
            {"steps", Json::array()},
            {"last_step_buckets", Json::array()}};
  for (Figure const& figure : kFigures) {
    json[figure.key] = figure.of(summary);
  }
  for (StepRecord const& step : run.steps) {
    json["losses"].push_back(step.loss);
    json["steps"].push_back(json_of(step));
  }
  if (!run.steps.empty()) {
    for (weft::BucketOverlap const& bucket : run.steps.back().overlap.buckets) {
      json["last_step_buckets"].push_back(json_of(bucket));
    }
  }
  return json;
}

/// Times that are not known are null.
Json json_of(weft::TuningOutcome const& tuned) {
  auto const milliseconds = [](double seconds) { return std::isfinite(seconds) ? Json(seconds * 1e3) : Json(); };
  return {{"setting", tuned.setting},       {"step_ms", milliseconds(tuned.seconds)},
          {"default", tuned.standard},      {"default_step_ms", milliseconds(tuned.default_seconds)},
          {"candidates", tuned.candidates}, {"steps", tuned.steps},
          {"from_cache", tuned.from_cache}};
}

}  // namespace

RunSummary summarise(RunRecord const& run, RunRecord const* baseline, RunRecord const& weft) {
  double const compute = (baseline != nullptr ? *baseline : run).median(&OverlapReport::compute_ms);
  double const communication = run.median(&OverlapReport::communication_ms);
  return {&run, compute, communication > 0.0 ? std::max(compute, head_ms(run) + communication) : compute,
          run.median(&OverlapReport::step_ms) / weft.median(&OverlapReport::step_ms)};
}

std::string comparison_table(std::span<RunSummary const> runs) {
  fmt::memory_buffer out;
  auto const to = std::back_inserter(out);
  fmt::format_to(to, "{:<16} {:<26}", "run", "link");
  for (Figure const& figure : kFigures) {
    fmt::format_to(to, " {:>{}}", figure.column, width_of(figure));
  }
  for (RunSummary const& summary : runs) {
    fmt::format_to(to, "\n{:<16} {:<26}", summary.run->name, summary.run->link);
    for (Figure const& figure : kFigures) {
      fmt::format_to(to, " {:>{}.{}f}", figure.of(summary), width_of(figure), figure.decimals);
    }
  }
  fmt::format_to(to,
                 "\nbound: no order of a step's work ends it sooner: max(compute, compute before the first bucket + "
                 "communication){}\nEach figure is a median of its own: step/bound below 1 is noise, not a faster "
                 "step.\n",
                 runs.size() > 1 ? ", compute being that of \"compute only\"" : "");
  return fmt::to_string(out);
}

void write_report(std::string const& path, Options const& options, GptParameters const& parameters,
                  std::span<RunSummary const> runs, Json const& memory, weft::TuningOutcome const* tuned) {
  GptConfig const& config = options.model;
  Json json{{"program", "train_gpt"},
            {"model",
             {{"parameters", parameters.count()},
              {"layers", config.layers},
              {"width", config.width},
              {"heads", config.heads},
              {"seq", config.seq}}},
            {"device", options.device},
            {"cuda_graph", options.cuda_graph},
            {"strategy", options.strategy},
            {"precision", options.precision},
            {"optimizer", options.optimizer},
            {"weight_decay", options.effective_weight_decay()},
            {"state", options.state},
            {"warmup", options.warmup},
            {"decay", options.decay},
            {"accumulate", options.accumulate},
            {"clip", options.clip},
            {"recompute", options.recompute},
            {"batch", options.batch},
            {"steps", options.steps},
            {"lr", options.lr},
            {"seed", options.seed},
            {"bucket_mb", options.bucket_mb},
            {"first_bucket_mb", options.first_bucket_mb},
            {"last_bucket_mb", options.last_bucket_mb},
            {"bucket_policy", options.bucket_policy},
            {"compress", options.compress},
            {"schedule", options.step_schedule},
            {"autotune", tuned == nullptr ? Json() : json_of(*tuned)},
            {"memory", memory},
            {"runs", Json::array()}};
  for (RunSummary const& run : runs) {
    json["runs"].push_back(json_of(run));
  }
  std::ofstream out(path);
  out << json.dump(1) << '\n';
  out.close();
  if (!out) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
}

void add_to_trace(weft::Trace& trace, int step, StepTimes const& times, std::span<Traffic const> traffic) {
  using Lane = weft::Trace::Lane;
  for (weft::Interval const& part : times.forward) {
    trace.add(Lane::compute, fmt::format("step {}: forward", step + 1), part);
  }
  for (weft::Interval const& part : times.backward) {
    trace.add(Lane::compute, fmt::format("step {}: backward", step + 1), part);
  }
  for (weft::Interval const& update : times.optimizer) {
    trace.add(Lane::compute, fmt::format("step {}: optimizer", step + 1), update);
  }
  for (auto const& [name, buckets] : traffic) {
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      trace.add(Lane::communication, fmt::format("step {}: {} {}", step + 1, name, i),
                {buckets[i].started, buckets[i].finished}, buckets[i].bytes);
    }
  }
}

}  // namespace train_gpt
