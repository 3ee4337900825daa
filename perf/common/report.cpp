#include "common/report.hpp"

#include <fmt/format.h>

#include <cmath>

namespace weft::perf {
namespace {

constexpr double kMicro = 1e6;

std::string time_text(double seconds) {
  double const us = seconds * kMicro;
  if (us >= 10000) return fmt::format("{:7.0f}", us);
  return us >= 100 ? fmt::format("{:7.1f}", us) : fmt::format("{:7.2f}", us);
}

std::string timing_text(std::optional<Timing> const& timing) {
  if (!timing) return fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", "N/A", "N/A", "N/A", "N/A");
  auto const wrong = timing->wrong ? fmt::format("{:5g}", *timing->wrong) : fmt::format("{:>5}", "N/A");
  return fmt::format("  {}  {:6.2f}  {:6.2f}  {}", time_text(timing->seconds), timing->algorithm_gbps, timing->bus_gbps,
                     wrong);
}

/// A figure that came out of a difference can drown in noise; then there is none.
std::string us_text(double seconds) {
  if (!(seconds > 0)) return fmt::format("{:>10}", "n/a");
  double const us = seconds * kMicro;
  return us >= 1000 ? fmt::format("{:10.0f}", us)
         : us >= 10 ? fmt::format("{:10.2f}", us)
                    : fmt::format("{:10.3f}", us);
}

double ratio(double numerator, double denominator) {
  return numerator > 0 && denominator > 0 ? numerator / denominator : 0;
}

std::string ratio_text(double value) {
  return value > 0 ? fmt::format("{:6.2f}x", value) : fmt::format("{:>7}", "n/a");
}

}  // namespace

std::string table_header() {
  return fmt::format(
      "# {0:>10}  {0:>12}  {0:>8}  {0:>6}  {0:>6}           out-of-place                       in-place          \n"
      "# {1:>10}  {2:>12}  {3:>8}  {4:>6}  {5:>6}  {6:>7}  {7:>6}  {8:>6} {9:>6}  {6:>7}  {7:>6}  {8:>6} {9:>6}\n"
      "# {10:>10}  {11:>12}  {0:>8}  {0:>6}  {0:>6}  {12:>7}  {13:>6}  {13:>6}  {0:>5}  {12:>7}  {13:>6}  {13:>6}  "
      "{0:>5}\n",
      "", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "(B)", "(elements)", "(us)",
      "(GB/s)");
}

std::string table_line(Line const& line) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}{}{}\n", line.bytes, line.count, nccl_name(line.dtype), line.op,
                     line.root, timing_text(line.out_of_place), timing_text(line.in_place));
}

double geometric_mean(std::vector<double> const& values) {
  double sum = 0;
  int used = 0;
  for (double const value : values) {
    if (!(value > 0) || !std::isfinite(value)) continue;
    sum += std::log(value);
    ++used;
  }
  return used == 0 ? 0 : std::exp(sum / used);
}

std::string detail_table(std::vector<Detail> const& details, std::string const& peer) {
  bool const compared = !peer.empty();
  std::string text =
      "#\n# call: the call alone; cost: write-call-read less write-read; limit: the same loads and stores, nobody "
      "waits (us)\n";
  text += fmt::format("# {:>10}  {:>10}  {:>10}  {:>10}  {:>7}  {:>7}", "size", "call", "cost", "limit", "call/l.",
                      "rounds");
  if (compared) text += fmt::format("  {:>10}  {:>7}  {:>10}  {:>7}", peer + " call", "ratio", peer + " cost", "ratio");
  text += "\n";
  std::vector<double> calls;
  std::vector<double> costs;
  std::vector<double> limits;
  for (auto const& line : details) {
    limits.push_back(ratio(line.call, line.limit));
    text += fmt::format("{:12}  {}  {}  {}  {}  {:>7}", line.bytes, us_text(line.call), us_text(line.cost),
                        us_text(line.limit), ratio_text(limits.back()),
                        fmt::format("{}/{}", line.rounds_kept, line.rounds));
    if (compared) {
      calls.push_back(ratio(line.peer_call.value_or(0), line.call));
      costs.push_back(ratio(line.peer_cost.value_or(0), line.cost));
      text += fmt::format("  {}  {}  {}  {}", us_text(line.peer_call.value_or(0)), ratio_text(calls.back()),
                          us_text(line.peer_cost.value_or(0)), ratio_text(costs.back()));
    }
    text += "\n";
  }
  text += fmt::format("# Geometric mean of call over limit: {:.2f}\n", geometric_mean(limits));
  if (compared) {
    text += fmt::format("# Geometric mean of {0} over weft: call {1:.2f}, cost {2:.2f}\n", peer, geometric_mean(calls),
                        geometric_mean(costs));
  }
  return text;
}

}  // namespace weft::perf
