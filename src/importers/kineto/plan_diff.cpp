#include "weft/plan_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <utility>

namespace weft {

namespace {

/// A name without its "#2".
std::string plain_name(std::string const& name) {
  auto const mark = name.rfind('#');
  if (mark == std::string::npos || mark + 1 == name.size()) return name;
  bool const counts = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(mark) + 1, name.end(),
                                  [](unsigned char c) { return std::isdigit(c) != 0; });
  return counts ? name.substr(0, mark) : name;
}

std::vector<PlannedTime> by_start(std::span<PlannedTime const> times) {
  std::vector<PlannedTime> sorted(times.begin(), times.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](PlannedTime const& a, PlannedTime const& b) { return a.start < b.start; });
  return sorted;
}

double length_of(std::span<PlannedTime const> times) {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  for (auto const& each : times) {
    begin = std::min(begin, each.start);
    end = std::max(end, each.start + each.seconds);
  }
  return times.empty() ? 0 : end - begin;
}

/// Shifts both so that the first operator that both have starts at 0.
void align(std::vector<PlanDiffRow>& rows) {
  auto const both =
      std::find_if(rows.begin(), rows.end(), [](PlanDiffRow const& row) { return row.planned && row.measured; });
  if (both == rows.end()) return;
  double const planned = both->planned->start;
  double const measured = both->measured->start;
  for (auto& row : rows) {
    if (row.planned) row.planned->start -= planned;
    if (row.measured) row.measured->start -= measured;
    if (!row.planned || !row.measured) continue;
    row.late = row.measured->start - row.planned->start;
    row.longer = row.measured->seconds - row.planned->seconds;
  }
}

std::string milliseconds(std::optional<PlannedTime> const& time, double PlannedTime::*member) {
  return time ? fmt::format("{:.3f}", (*time).*member * 1e3) : "-";
}

}  // namespace

PlanDiff compare_plan(std::span<PlannedTime const> planned, std::span<PlannedTime const> measured) {
  PlanDiff diff{.planned_seconds = length_of(planned), .measured_seconds = length_of(measured)};
  std::map<std::pair<std::string, int>, std::size_t> row_of;
  std::map<std::string, int> count;
  for (auto const& each : by_start(planned)) {
    auto const name = plain_name(each.name);
    row_of[{name, count[name]++}] = diff.rows.size();
    diff.rows.push_back({.name = each.name, .planned = each});
  }
  count.clear();
  for (auto const& each : by_start(measured)) {
    auto const name = plain_name(each.name);
    auto const found = row_of.find({name, count[name]++});
    if (found != row_of.end()) {
      diff.rows[found->second].measured = each;
    } else {
      diff.rows.push_back({.name = each.name, .measured = each});
      ++diff.not_planned;
    }
  }
  for (auto const& row : diff.rows) diff.not_measured += row.measured ? 0 : 1;
  align(diff.rows);
  return diff;
}

std::vector<PlannedTime> times_of(ImportedTrace const& trace) {
  std::vector<PlannedTime> times;
  for (std::size_t op = 0; op < trace.graph.ops.size(); ++op) {
    auto const& node = trace.graph.ops[op];
    times.push_back({.name = node.name, .start = trace.starts[op], .seconds = node.seconds.value_or(0)});
  }
  return times;
}

std::string to_string(PlanDiff const& diff, std::size_t most) {
  auto rows = diff.rows;
  std::stable_sort(rows.begin(), rows.end(),
                   [](PlanDiffRow const& a, PlanDiffRow const& b) { return a.late > b.late; });
  std::string text = fmt::format("{:<40} {:>12} {:>12} {:>10} {:>12} {:>12} {:>10}\n", "operator", "planned at",
                                 "measured at", "late", "planned", "measured", "longer");
  for (auto const& row : std::span(rows).first(std::min(most, rows.size()))) {
    bool const both = row.planned && row.measured;
    text += fmt::format(
        "{:<40} {:>12} {:>12} {:>10} {:>12} {:>12} {:>10}\n", row.name, milliseconds(row.planned, &PlannedTime::start),
        milliseconds(row.measured, &PlannedTime::start), both ? fmt::format("{:+.3f}", row.late * 1e3) : "-",
        milliseconds(row.planned, &PlannedTime::seconds), milliseconds(row.measured, &PlannedTime::seconds),
        both ? fmt::format("{:+.3f}", row.longer * 1e3) : "-");
  }
  text += fmt::format("in ms; planned {:.3f}, measured {:.3f}; {} operators were not measured, {} not planned\n",
                      diff.planned_seconds * 1e3, diff.measured_seconds * 1e3, diff.not_measured, diff.not_planned);
  return text;
}

}  // namespace weft
