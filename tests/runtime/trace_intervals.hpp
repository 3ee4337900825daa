#pragma once

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/overlap.hpp"

namespace weft::test {

/// What a reader of a trace file does: one rank's intervals of a category, back from microseconds.
inline std::vector<Interval> intervals_in(nlohmann::json const& trace, int rank, std::string const& category) {
  auto const time = [](double us) { return TimePoint(std::chrono::nanoseconds(std::llround(us * 1000))); };
  std::vector<Interval> intervals;
  for (auto const& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != rank || event.at("cat") != category) continue;
    auto const start = event.at("ts").get<double>();
    intervals.push_back({time(start), time(start + event.at("dur").get<double>())});
  }
  return intervals;
}

/// 100 · |C ∩ M| / |M| from a trace file's intervals alone.
inline double hidden_percent_of(nlohmann::json const& trace, int rank) {
  auto const compute = intervals_in(trace, rank, "compute");
  auto const communication = intervals_in(trace, rank, "communication");
  auto const whole = static_cast<double>(union_length(communication).count());
  return 100 * static_cast<double>(intersection_length(compute, communication).count()) / whole;
}

}  // namespace weft::test
