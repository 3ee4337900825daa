#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/with_unit.hpp"
#include "weft/overlap.hpp"

namespace weft {

namespace {

/// Share of a step: smaller differences are not mentioned.
constexpr double kSmallShare = 0.02;

/// The bound takes it as given when buckets were ready; often that is what can be changed.
std::string describe_bound(OverlapReport const& report) {
  double const small = kSmallShare * report.step_ms;
  std::string text = report.idle_ms > small ? "idle time left out, no order" : "no order";
  text += " ends the step sooner";
  double const earlier = std::max(report.compute_ms, report.communication_ms);
  if (report.bound_ms - earlier > small)
    text += fmt::format("; with earlier or smaller buckets {:.3f} ms might do", earlier);
  return text;
}

}  // namespace

std::string format_overlap_report(OverlapReport const& report, std::string const& title,
                                  std::span<std::string const> collectives) {
  std::vector<std::string> names{"collective"};
  names.insert(names.end(), collectives.begin(), collectives.end());
  auto const longest = std::max_element(names.begin(), names.end(),
                                        [](auto const& one, auto const& other) { return one.size() < other.size(); });
  auto const column = [&, width = longest->size()](std::size_t row) {
    return collectives.empty() ? "" : fmt::format("  {:<{}}", names[row], width);
  };

  fmt::memory_buffer out;
  auto const line = [&out](auto const& format, auto const&... values) {
    fmt::format_to(std::back_inserter(out), fmt::runtime(format), values...);
    out.push_back('\n');
  };
  auto const total = [&line](char const* name, double ms, std::string const& note) {
    line("  {:<14} {:>10.3f} ms{}{}", name, ms, note.empty() ? "" : "   ", note);
  };

  line("{}", title);
  line("  {:>6}{} {:>11} {:>10} {:>10} {:>11} {:>11}", "bucket", column(0), "bytes", "ready ms", "started ms",
       "finished ms", "exposed ms");
  for (std::size_t index = 0; index < report.buckets.size(); ++index) {
    auto const& bucket = report.buckets[index];
    line("  {:>6}{} {:>11} {:>10.3f} {:>10.3f} {:>11.3f} {:>11.3f}", index, column(index + 1), with_unit(bucket.bytes),
         bucket.ready_ms, bucket.started_ms, bucket.finished_ms, bucket.exposed_ms);
  }
  if (report.buckets.empty()) line("  {:>6}", "(none)");
  total("step", report.step_ms, "");
  total("compute", report.compute_ms, "");
  total("communication", report.communication_ms, "");
  total("hidden", report.hidden_ms, fmt::format("{:.1f} % of communication", report.hidden_percent()));
  total("exposed", report.exposed_ms, "");
  total("idle", report.idle_ms, "neither: waiting for data, a lock, or a core");
  total("hideable", report.hideable_ms,
        fmt::format("by computation after buckets were ready; {:.1f} % of it was hidden",
                    report.hidden_of_hideable_percent()));
  total("bound", report.bound_ms, describe_bound(report));
  return fmt::to_string(out);
}

}  // namespace weft
