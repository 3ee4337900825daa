#include "report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

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
          {"hideable_ms", overlap.hideable_ms},
          {"hidden_percent", overlap.hidden_percent()},
          {"bound_ms", overlap.bound_ms}};
}

Json json_of(RunSummary const& summary) {
  RunRecord const& run = *summary.run;
  Json json{{"name", run.name},
            {"link", run.link},
            {"ranks", run.ranks},
            {"step_ms", run.median(&OverlapReport::step_ms)},
            {"compute_ms", summary.compute_ms},
            {"own_compute_ms", run.median(&OverlapReport::compute_ms)},
            {"communication_ms", run.median(&OverlapReport::communication_ms)},
            {"hidden_ms", run.median(&OverlapReport::hidden_ms)},
            {"exposed_ms", run.median(&OverlapReport::exposed_ms)},
            {"hideable_ms", run.median(&OverlapReport::hideable_ms)},
            {"hidden_percent", run.hidden_percent()},
            {"bound_ms", summary.bound_ms},
            {"tokens_per_s", run.tokens_per_second()},
            {"losses", Json::array()},
            {"steps", Json::array()},
            {"last_step_buckets", Json::array()}};
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

}  // namespace

RunSummary summarise(RunRecord const& run, RunRecord const* baseline) {
  double const compute = (baseline != nullptr ? *baseline : run).median(&OverlapReport::compute_ms);
  double const communication = run.median(&OverlapReport::communication_ms);
  return {&run, compute, communication > 0.0 ? std::max(compute, head_ms(run) + communication) : compute};
}

std::string comparison_table(std::span<RunSummary const> runs) {
  fmt::memory_buffer out;
  auto const to = std::back_inserter(out);
  fmt::format_to(to, "{:<16} {:<26} {:>9} {:>10} {:>9} {:>8} {:>10} {:>9} {:>8} {:>9} {:>10}\n", "run", "link",
                 "step ms", "compute ms", "comm. ms", "hidden %", "exposed ms", "tokens/s", "vs weft", "bound ms",
                 "step/bound");
  double const first = runs.front().run->median(&OverlapReport::step_ms);
  for (RunSummary const& summary : runs) {
    RunRecord const& run = *summary.run;
    double const step = run.median(&OverlapReport::step_ms);
    fmt::format_to(
        to, "{:<16} {:<26} {:>9.2f} {:>10.2f} {:>9.2f} {:>8.1f} {:>10.2f} {:>9.0f} {:>7.3f}x {:>9.2f} {:>10.3f}\n",
        run.name, run.link, step, run.median(&OverlapReport::compute_ms), run.median(&OverlapReport::communication_ms),
        run.hidden_percent(), run.median(&OverlapReport::exposed_ms), run.tokens_per_second(), step / first,
        summary.bound_ms, step / summary.bound_ms);
  }
  return fmt::to_string(out);
}

void write_report(std::string const& path, Options const& options, GptModel const& model,
                  std::span<RunSummary const> runs) {
  GptConfig const& config = options.model;
  Json json{{"program", "train_gpt"},
            {"model",
             {{"parameters", model.parameter_count()},
              {"layers", config.layers},
              {"width", config.width},
              {"heads", config.heads},
              {"seq", config.seq}}},
            {"batch", options.batch},
            {"steps", options.steps},
            {"lr", options.lr},
            {"seed", options.seed},
            {"bucket_mb", options.bucket_mb},
            {"first_bucket_mb", options.first_bucket_mb},
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

void add_to_trace(weft::Trace& trace, int step, StepTimes const& times, std::span<weft::BucketTiming const> buckets) {
  using Lane = weft::Trace::Lane;
  trace.add(Lane::compute, fmt::format("step {}: forward", step + 1), times.forward);
  trace.add(Lane::compute, fmt::format("step {}: backward", step + 1), times.backward);
  for (weft::Interval const& update : times.optimizer) {
    trace.add(Lane::compute, fmt::format("step {}: optimizer", step + 1), update);
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    trace.add(Lane::communication, fmt::format("step {}: bucket {}", step + 1, i),
              {buckets[i].started, buckets[i].finished}, buckets[i].bytes);
  }
}

}  // namespace train_gpt
