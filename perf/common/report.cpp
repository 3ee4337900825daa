#include "common/report.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>

#include "common/names.hpp"

namespace weft::perf {
namespace {

constexpr double kMicro = 1e6;
constexpr int kTimeWidth = 7;
constexpr int kBandwidthWidth = 6;

std::string timing_text(std::optional<Timing> const& timing) {
  if (!timing) return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", number_text(timing->seconds * kMicro, kTimeWidth),
                     number_text(timing->algorithm_gbps, kBandwidthWidth),
                     number_text(timing->bus_gbps, kBandwidthWidth),
                     timing->wrong ? fmt::format("{:g}", *timing->wrong) : "N/A");
}

std::string extras_text(std::vector<Column> const& columns, std::string Column::*text) {
  std::string result;
  for (auto const& column : columns) result += fmt::format("  {:>9}", column.*text);
  return result;
}

}  // namespace

std::string number_text(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    auto text = fmt::format("{:.{}f}", value, decimals);
    if (static_cast<int>(text.size()) <= width) return text;
  }
  return fmt::format("{:.{}e}", value, width >= kTimeWidth ? 1 : 0);
}

std::string table_header(TableLayout const& layout) {
  auto const half = [](char const* time) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, "algbw", "busbw", "#wrong");
  };
  auto const units = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  char const* const time = layout.cpu_time ? "cputime" : "time";
  auto const stamp = [&](char const* text) { return layout.timestamps ? fmt::format("{:>21}", text) : std::string(); };
  auto const lead = [](char const* size, char const* count, char const* type, char const* op, char const* root) {
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
  };
  return "#\n" + lead("", "", "", "", "") + "           out-of-place                       in-place          \n" +
         lead("size", "count", "type", "redop", "root") + half(time) + half(time) + " " + stamp("timestamp") +
         extras_text(layout.extras, &Column::name) + "\n" + lead("(B)", "(elements)", "", "", "") + units + units +
         " " + stamp("%Y-%m-%d %H:%M:%S") + extras_text(layout.extras, &Column::unit) + "\n";
}

std::string table_line(Line const& line) {
  auto text = fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}{}{}", line.bytes, line.count, nccl_name(line.dtype),
                          line.op, line.root, timing_text(line.out_of_place), timing_text(line.in_place));
  if (!line.timestamp.empty()) text += fmt::format("{:>21}", line.timestamp);
  if (!line.extras.empty()) text += " ";
  for (auto const& extra : line.extras) text += fmt::format("  {:>9}", extra);
  return text + "\n";
}

double average_bus_gbps(std::vector<Timing> const& timings) {
  double sum = 0;
  int known = 0;
  for (auto const& timing : timings) {
    if (!(timing.seconds > 0)) continue;
    sum += timing.bus_gbps;
    ++known;
  }
  return known == 0 ? 0 : sum / known;
}

bool is_fast_enough(double average_gbps, double wanted_gbps) {
  constexpr double kEnough = 0.9;
  return average_gbps >= kEnough * wanted_gbps;
}

std::string closing_text(Totals const& totals) {
  auto const verdict = [](bool okay) { return okay ? "OK" : "FAILED"; };
  return fmt::format("# {:<20} : {:g} {}\n# {:<20} : {:g} {}\n#\n", "Out of bounds values", totals.wrong,
                     verdict(totals.wrong == 0), "Avg bus bandwidth", totals.average_gbps,
                     totals.fast_enough ? verdict(*totals.fast_enough) : "");
}

std::string disturbed_text(Totals const& totals) {
  if (totals.disturbed == 0) return {};
  return fmt::format("# No undisturbed round for {} of {} lines: those figures are of the least disturbed{}\n",
                     totals.disturbed, totals.lines,
                     totals.has_wishes ? "; WEFT_PERF_BARRIER_US or WEFT_PERF_WORK_US say what counts" : "");
}

std::string us_text(double seconds) {
  if (!(seconds > 0)) return "n/a";
  double const us = seconds * kMicro;
  if (us >= 1000) return fmt::format("{:.0f}", us);
  return us >= 10 ? fmt::format("{:.2f}", us) : fmt::format("{:.3f}", us);
}

double ratio(double numerator, double denominator) {
  return numerator > 0 && denominator > 0 ? numerator / denominator : 0;
}

std::string ratio_text(double value) {
  return value > 0 ? fmt::format("{:.2f}x", value) : "n/a";
}

std::string now_text() {
  std::time_t const now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local);
  return text.data();
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

}  // namespace weft::perf
