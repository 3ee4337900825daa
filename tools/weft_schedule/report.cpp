#include "weft_schedule/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tool_output/byte_unit.hpp"
#include "weft_schedule/advice.hpp"
#include "weft_schedule/gaps.hpp"

namespace weft::schedule_tool {

namespace {

using Json = nlohmann::ordered_json;
using tool_output::ByteUnit;

constexpr std::size_t kMostNamed = 12;

double ratio(Schedule const& schedule) {
  double const bound = schedule.bound.best_s();
  return bound > 0 ? schedule.makespan_s / bound : 1;
}

double exposed_fraction(Schedule const& schedule) {
  return schedule.makespan_s > 0 ? schedule.exposed_s / schedule.makespan_s : 0;
}

/// The part of the bound that is largest, as words. A resource's has what comes before and after its work in it, and
/// is the longest path's where that path is all there is.
std::string bounded_by(LowerBound const& bound) {
  double const best = bound.best_s();
  if (bound.contention_s >= best && best > 0) return "computing and sending together, which slow each other";
  if (bound.launches_s >= best && best > 0) return "launches, which either are many or are waited for";
  bool const is_path = bound.critical_path_s >= best * (1 - 1e-9);
  for (int i = 0; i < kResources && !is_path; ++i) {
    if (bound.resource_s[static_cast<std::size_t>(i)] < best) continue;
    switch (static_cast<Resource>(i)) {
      case Resource::compute: return "computing";
      case Resource::between_hosts: return "the link between hosts";
      case Resource::within_host: return "the link within a host";
      case Resource::copy: return "copies";
    }
  }
  return "its longest path of what waits for one another";
}

std::string name_of(OpGraph const& graph, OpId op) {
  return graph.ops[static_cast<std::size_t>(op)].name;
}

std::string sentence(OpGraph const& graph, Gap const& gap) {
  std::string text = fmt::format("{:.3f} ms from {:.3f} ms on ({})", (gap.end_s - gap.begin_s) * 1e3, gap.begin_s * 1e3,
                                 to_string(gap.cause));
  if (gap.before != kNone) text += fmt::format(", before {}", name_of(graph, gap.before));
  if (gap.waited_for != kNone) text += fmt::format(", which waits for {}", name_of(graph, gap.waited_for));
  return text;
}

ByteUnit unit_of_peaks(std::vector<Schedule> const& schedules) {
  double least = 1e300;
  for (auto const& schedule : schedules) least = std::min(least, static_cast<double>(schedule.peak_bytes));
  return tool_output::byte_unit_for(least);
}

void print_table(std::FILE* out, Outcome const& outcome, Outcome const* other) {
  ByteUnit const unit = unit_of_peaks(outcome.schedules);
  std::string const peak = fmt::format("peak {}", unit.name);
  fmt::print(out, "{:<10}{:>12}{:>12}{:>8}{:>10}{:>11}{:>11}", "policy", "step ms", "bound ms", "ratio", "exposed",
             peak, "planned s");
  if (other != nullptr) fmt::print(out, " |{:>12}{:>8}{:>11}{:>9}", "step ms", "ratio", peak, "faster");
  fmt::print(out, "\n");
  for (std::size_t i = 0; i < outcome.schedules.size(); ++i) {
    Schedule const& one = outcome.schedules[i];
    fmt::print(out, "{:<10} {:>11.3f} {:>11.3f} {:>7.4f} {:>8.1f}% {:>10.2f} {:>10.2f}", one.policy,
               one.makespan_s * 1e3, one.bound.best_s() * 1e3, ratio(one), 100 * exposed_fraction(one),
               static_cast<double>(one.peak_bytes) / unit.bytes, one.planning_s);
    if (other != nullptr) {
      Schedule const& then = other->schedules[i];
      fmt::print(out, " | {:>11.3f} {:>7.4f} {:>10.2f} {:>7.3f}x", then.makespan_s * 1e3, ratio(then),
                 static_cast<double>(then.peak_bytes) / unit.bytes, one.makespan_s / then.makespan_s);
    }
    fmt::print(out, "\n");
  }
}

/// Names that differ in numbers alone are one: "layer#.qkv of 32".
std::string summed_up(std::vector<std::string> const& names) {
  std::map<std::string, int> counts;
  for (auto const& name : names) {
    std::string pattern;
    for (char const letter : name) {
      bool const digit = letter >= '0' && letter <= '9';
      if (!digit) pattern += letter;
      if (digit && (pattern.empty() || pattern.back() != '#')) pattern += '#';
    }
    ++counts[pattern];
  }
  std::vector<std::pair<int, std::string>> sorted;
  for (auto const& [pattern, count] : counts) sorted.emplace_back(-count, pattern);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostNamed, sorted.size()); ++i) {
    text += fmt::format("{}{} {}", i > 0 ? ", " : "", -sorted[i].first, sorted[i].second);
  }
  return text + (sorted.size() > kMostNamed ? ", ..." : "");
}

void print_recomputed(std::FILE* out, Outcome const& outcome) {
  if (!outcome.recomputed) return;
  auto const& again = *outcome.recomputed;
  fmt::print(out, "computed again: {} operators, {:.3f} ms, for {} rather than {}: {}\n", again.operators.size(),
             again.seconds * 1e3, in_gigabytes(outcome.serial_peak_bytes), in_gigabytes(again.bytes_before),
             summed_up(again.operators));
}

void print_replays(std::FILE* out, Outcome const& outcome) {
  if (outcome.replays.empty()) return;
  fmt::print(out, "{:<10}{:>16}{:>22}{:>22}\n", "replayed", "each +-20 %", "links slow, ms", "computing slow, ms");
  for (std::size_t i = 0; i < outcome.replays.size(); ++i) {
    Replays const& times = outcome.replays[i];
    fmt::print(out, "{:<10}{:>16.3f}{:>22.3f}{:>22.3f}\n", outcome.schedules[i].policy, times.noise_s * 1e3,
               times.slow_links_s * 1e3, times.slow_computing_s * 1e3);
  }
}

double mebibytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

/// "3.2 % less", "0.1 % more".
std::string against(double seconds, double than_s) {
  double const percent = 100 * (seconds / than_s - 1);
  return fmt::format("{:.1f} % {}", std::abs(percent), percent < 0 ? "less" : "more");
}

void print_settings(std::FILE* out, Advice const& advice, Schedule const& schedule) {
  ScheduleSettings const& settings = advice.settings;
  if (settings == ScheduleSettings{}) {
    fmt::print(out,
               "  a trainer that cannot run this plan: nothing to set; every collective by itself, as soon as it can, "
               "takes {:.3f} ms, {} than the plan\n",
               advice.single_s * 1e3, against(advice.single_s, schedule.makespan_s));
    return;
  }
  std::string text;
  if (advice.gathers) {
    text += fmt::format("gather {:.1f} MiB at a time", mebibytes(settings.gather_bytes));
    if (advice.layers_a_gather > 0) text += fmt::format(" (about {:.1f} layers' weights)", advice.layers_a_gather);
    if (settings.prefetch_depth > 0) text += fmt::format(", {} ahead of the one in use", settings.prefetch_depth);
  }
  if (advice.reduces) {
    text += fmt::format("{}gradients in buckets of {:.1f} MiB", text.empty() ? "" : "; ",
                        mebibytes(settings.reduction_bytes));
  }
  fmt::print(out, "  a trainer that cannot run this plan: {}\n", text);
  fmt::print(out, "    that takes {:.3f} ms a step: {} than every collective by itself, {} than the plan\n",
             advice.settings_s * 1e3, against(advice.settings_s, advice.single_s),
             against(advice.settings_s, schedule.makespan_s));
}

void print_advice(std::FILE* out, Advice const& advice, Schedule const& schedule) {
  if (advice.gathers || advice.reduces) print_settings(out, advice, schedule);
  if (advice.kept_layers.empty()) return;
  std::string const gain = advice.kept_s ? fmt::format("that takes {:.3f} ms a step, {} than resharding them",
                                                       *advice.kept_s * 1e3, against(*advice.kept_s, advice.settings_s))
                                         : fmt::format("about {:.3f} ms less to send", advice.kept_saves_s * 1e3);
  bool const one = advice.kept_layers.size() == 1;
  fmt::print(out, "  there is room to keep {} gathered from forward to backward: {}\n",
             one ? fmt::format("layer {}", advice.kept_layers.front())
                 : fmt::format("{} layers, {} to {},", advice.kept_layers.size(), advice.kept_layers.front(),
                               advice.kept_layers.back()),
             gain);
}

Json advice_json(Advice const& advice) {
  return {{"gather_bytes", advice.settings.gather_bytes},
          {"reduction_bytes", advice.settings.reduction_bytes},
          {"prefetch_depth", advice.settings.prefetch_depth},
          {"layers_a_gather", advice.layers_a_gather},
          {"step_ms", advice.settings_s * 1e3},
          {"single_step_ms", advice.single_s * 1e3},
          {"kept_layers", advice.kept_layers},
          {"kept_saves_ms", advice.kept_saves_s * 1e3},
          {"kept_step_ms", advice.kept_s ? Json(*advice.kept_s * 1e3) : Json()}};
}

Json time_json(std::optional<PlannedTime> const& time) {
  if (!time) return {};
  return {{"start_ms", time->start * 1e3}, {"ms", time->seconds * 1e3}};
}

Json measured_json(PlanDiff const& diff) {
  Json rows = Json::array();
  for (PlanDiffRow const& row : diff.rows) {
    rows.push_back({{"name", row.name},
                    {"planned", time_json(row.planned)},
                    {"measured", time_json(row.measured)},
                    {"late_ms", row.late * 1e3},
                    {"longer_ms", row.longer * 1e3}});
  }
  return {{"planned_ms", diff.planned_seconds * 1e3},
          {"measured_ms", diff.measured_seconds * 1e3},
          {"not_measured", diff.not_measured},
          {"not_planned", diff.not_planned},
          {"rows", std::move(rows)}};
}

void print_case(std::FILE* out, Outcome const& outcome) {
  Schedule const& schedule = outcome.main_schedule();
  auto const& graph = outcome.planned.graph;
  fmt::print(out, "{}: no schedule is faster than {:.3f} ms: bounded by {}; {}'s takes {:.2f} % more{}\n",
             outcome.label.empty() ? "as given" : outcome.label, schedule.bound.best_s() * 1e3,
             bounded_by(schedule.bound), schedule.policy, std::max(0.0, 100 * (ratio(schedule) - 1)),
             schedule.shortest ? ", and none is shorter within this memory" : "");
  for (int i = 0; i < kResources; ++i) {
    double const busy = schedule.busy_s[static_cast<std::size_t>(i)];
    if (busy > 0) {
      fmt::print(out, "  {:<14} busy {:>12.3f} ms{:>8.1f} % of the step\n", to_string(static_cast<Resource>(i)),
                 busy * 1e3, 100 * busy / schedule.makespan_s);
    }
  }
  auto const gaps = gaps_of(graph, schedule);
  auto const sums = sums_of(gaps);
  for (int i = 0; i < kGapCauses; ++i) {
    GapSum const& sum = sums[static_cast<std::size_t>(i)];
    if (sum.count == 0) continue;
    fmt::print(out, "  nothing computed for {:>9.3f} ms, {:.3f} of them exposed sending, in {} gap{}: {}\n",
               sum.seconds * 1e3, sum.exposed_s * 1e3, sum.count, sum.count == 1 ? "" : "s",
               to_string(static_cast<GapCause>(i)));
  }
  auto const longest = std::max_element(
      gaps.begin(), gaps.end(), [](auto const& a, auto const& b) { return a.end_s - a.begin_s < b.end_s - b.begin_s; });
  if (longest != gaps.end()) fmt::print(out, "  the longest gap: {}\n", sentence(graph, *longest));
  print_advice(out, outcome.advice, schedule);
  if (outcome.measured)
    fmt::print(out, "{}'s plan beside what was measured, the latest first:\n{}", schedule.policy,
               to_string(*outcome.measured));
}

Json gaps_json(OpGraph const& graph, std::vector<Gap> const& gaps) {
  Json json;
  auto const sums = sums_of(gaps);
  for (int i = 0; i < kGapCauses; ++i) {
    GapSum const& sum = sums[static_cast<std::size_t>(i)];
    json["causes"].push_back({{"cause", to_string(static_cast<GapCause>(i))},
                              {"gaps", sum.count},
                              {"ms", sum.seconds * 1e3},
                              {"exposed_ms", sum.exposed_s * 1e3}});
  }
  auto longest = gaps;
  std::sort(longest.begin(), longest.end(),
            [](auto const& a, auto const& b) { return a.end_s - a.begin_s > b.end_s - b.begin_s; });
  longest.resize(std::min<std::size_t>(longest.size(), 10));
  json["longest"] = Json::array();
  for (auto const& gap : longest) {
    json["longest"].push_back({{"begin_ms", gap.begin_s * 1e3},
                               {"ms", (gap.end_s - gap.begin_s) * 1e3},
                               {"exposed_ms", gap.exposed_s * 1e3},
                               {"cause", to_string(gap.cause)},
                               {"before", gap.before == kNone ? Json() : Json(name_of(graph, gap.before))},
                               {"waits_for", gap.waited_for == kNone ? Json() : Json(name_of(graph, gap.waited_for))}});
  }
  return json;
}

Json policy_json(Schedule const& schedule) {
  Json busy;
  for (int i = 0; i < kResources; ++i) {
    busy[std::string(to_string(static_cast<Resource>(i)))] = schedule.busy_s[static_cast<std::size_t>(i)] * 1e3;
  }
  return {{"name", schedule.policy},
          {"makespan_ms", schedule.makespan_s * 1e3},
          {"lower_bound_ms", schedule.bound.best_s() * 1e3},
          {"exposed_fraction", exposed_fraction(schedule)},
          {"peak_bytes", schedule.peak_bytes},
          {"planning_s", schedule.planning_s},
          {"shortest", schedule.shortest},
          {"launches", schedule.launches.size()},
          {"busy_ms", std::move(busy)}};
}

Json case_json(Outcome const& outcome) {
  Json policies = Json::array();
  for (auto const& schedule : outcome.schedules) policies.push_back(policy_json(schedule));
  for (std::size_t i = 0; i < outcome.replays.size(); ++i) {
    policies[i]["replayed_ms"] = {{"noise", outcome.replays[i].noise_s * 1e3},
                                  {"slow_links", outcome.replays[i].slow_links_s * 1e3},
                                  {"slow_computing", outcome.replays[i].slow_computing_s * 1e3}};
  }
  Schedule const& main = outcome.main_schedule();
  Json recomputed;
  if (outcome.recomputed) {
    recomputed = {{"operators", outcome.recomputed->operators},
                  {"ms", outcome.recomputed->seconds * 1e3},
                  {"serial_peak_bytes_before", outcome.recomputed->bytes_before}};
  }
  return {{"graph", outcome.planned.graph.name},
          {"operators", outcome.planned.graph.ops.size()},
          {"cluster", outcome.planned.cluster.name},
          {"capacity", outcome.capacity},
          {"resident_bytes", outcome.resident_bytes},
          {"serial_peak_bytes", outcome.serial_peak_bytes},
          {"contention", outcome.planned.contention},
          {"recomputed", std::move(recomputed)},
          {"policies", std::move(policies)},
          {"bounded_by", bounded_by(main.bound)},
          {"bound_within_memory_ms", main.bound.within_memory_s() * 1e3},
          {"advice", advice_json(outcome.advice)},
          {"measured", outcome.measured ? measured_json(*outcome.measured) : Json()},
          {"gaps_of", main.policy},
          {"gaps", gaps_json(outcome.planned.graph, gaps_of(outcome.planned.graph, main))}};
}

}  // namespace

void print_report(std::FILE* out, Outcome const& outcome, std::optional<WhatIf> const& what_if) {
  Outcome const* const other = what_if && what_if->outcome ? &*what_if->outcome : nullptr;
  fmt::print(out, "{}: {} operators on {}, {} of memory, of which {} are there all the time; least known {}\n",
             outcome.planned.graph.name, outcome.planned.graph.ops.size(), outcome.planned.cluster.name,
             in_gigabytes(outcome.capacity), in_gigabytes(outcome.resident_bytes),
             in_gigabytes(outcome.serial_peak_bytes));
  print_recomputed(out, outcome);
  print_table(out, outcome, other);
  print_replays(out, outcome);
  print_case(out, outcome);
  if (other != nullptr) print_case(out, *other);
  if (what_if && other == nullptr) fmt::print(out, "what-if {} does not fit: {}\n", what_if->changes, what_if->misfit);
}

Json report_json(Outcome const& outcome, std::optional<WhatIf> const& what_if) {
  Json json = case_json(outcome);
  if (what_if) {
    if (what_if->outcome) json["what_if"] = case_json(*what_if->outcome);
    if (!what_if->outcome) json["what_if"]["does_not_fit"] = what_if->misfit;
    json["what_if"]["changes"] = what_if->changes;
  }
  return json;
}

}  // namespace weft::schedule_tool
