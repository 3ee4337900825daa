#include "weft_simulate/report.hpp"

#include <fmt/format.h>

#include <string>

#include "tool_output/tool_output.hpp"

namespace weft::simulate_tool {
namespace {

constexpr std::size_t kColumn = 22;
constexpr std::size_t kBoundColumn = 12;

std::string size_text(std::size_t bytes) {
  char const* const units[] = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit < 3) bytes /= 1024, ++unit;
  return fmt::format("{}{}", bytes, units[unit]);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} µs", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

/// Right-aligned in so many columns: what fmt does not do for characters of several bytes in every version.
std::string padded(std::string const& text, std::size_t columns) {
  std::size_t shown = 0;
  for (char const each : text) shown += (static_cast<unsigned char>(each) & 0xc0U) != 0x80U ? 1 : 0;
  return std::string(shown < columns ? columns - shown : 0, ' ') + text;
}

}  // namespace

void print_network(std::FILE* out, Settings const& settings, std::string_view what) {
  auto const& t = settings.topology;
  auto const link = [](sim::LinkSpeed const& speed) {
    return fmt::format("{} and {:.4g} GB/s", time_text(speed.latency_s), speed.bytes_per_s / 1e9);
  };
  fmt::print(out, "# {} on {}: {} ranks, {} a host", what, settings.topology_name, t.ranks, t.ranks_per_host);
  if (t.ranks_per_host > 1) fmt::print(out, "; inside {}", link(t.inside));
  if (t.ranks > t.ranks_per_host) {
    fmt::print(out, "; between {}, a NIC a {}", link(t.between), t.shared_nic ? "host" : "rank");
  }
  if (t.rails) fmt::print(out, "; by rails");
  if (t.hosts_per_leaf > 0) fmt::print(out, "; {} hosts a leaf", t.hosts_per_leaf);
  if (t.oversubscription > 1) fmt::print(out, "; oversubscribed {:g}×", t.oversubscription);
  for (auto const& slow : settings.stragglers) {
    fmt::print(out, "; rank {} {:g}× slower, {} late", slow.rank, slow.factor, time_text(sim::to_seconds(slow.delay)));
  }
  for (auto const& loss : settings.losses) {
    fmt::print(out, "; rank {} lost after {}", loss.rank, time_text(sim::to_seconds(loss.at)));
  }
  if (!settings.losses.empty()) fmt::print(out, ", known {} later", time_text(settings.detection_s));
  if (settings.jitter_s > 0)
    fmt::print(out, "; up to {} later by seed {}", time_text(settings.jitter_s), settings.seed);
  if (settings.reduction_bytes_per_s > 0)
    fmt::print(out, "; combining {:.4g} GB/s", settings.reduction_bytes_per_s / 1e9);
  fmt::print(out, "\n");
}

void print_heading(std::FILE* out, Settings const& settings) {
  print_network(out, settings, to_string(settings.operation));
  fmt::print(out,
             "# simulated times (times the bound); bound: no algorithm takes less without stragglers; *: the best\n");
  if (!settings.losses.empty())
    fmt::print(out, "# N fail: so many ranks end with an error, the last after that time\n");
  fmt::print(out, "{:>10} {}", "bytes", padded("bound", kBoundColumn));
  for (auto const& candidate : settings.candidates)
    fmt::print(out, " {}", padded(std::string(candidate.name()), kColumn));
  fmt::print(out, "\n");
  tool_output::flush(out);
}

void print_row(std::FILE* out, Row const& row) {
  fmt::print(out, "{:>10} {}", size_text(row.bytes), padded(time_text(row.bound_s), kBoundColumn));
  for (std::size_t i = 0; i < row.points.size(); ++i) {
    auto const seconds = row.points[i].seconds;
    auto const failed = row.points[i].failed_ranks;
    auto const over = row.bound_s > 0 ? fmt::format("{:.2f}", seconds / row.bound_s) : "-";
    fmt::print(out, " {}",
               padded(fmt::format("{}{} ({})", i == row.best ? "*" : "", time_text(seconds),
                                  failed > 0 ? fmt::format("{} fail", failed) : over),
                      kColumn));
  }
  fmt::print(out, "\n");
  tool_output::flush(out);
}

void print_failure(std::FILE* out, Settings const& settings, std::vector<Row> const& rows) {
  for (auto const& row : rows) {
    for (std::size_t i = 0; i < row.points.size(); ++i) {
      if (row.points[i].failed_ranks == 0) continue;
      fmt::print(out, "# {} bytes by {} end with: {}\n", size_text(row.bytes), settings.candidates[i].name(),
                 row.points[i].error);
      return;
    }
  }
  if (!settings.losses.empty()) fmt::print(out, "# no rank fails: all calls end before the first is lost\n");
}

void print_crossovers(std::FILE* out, Settings const& settings, std::vector<Row> const& rows) {
  if (settings.candidates.size() < 2) return;
  for (auto const& crossover : crossovers(rows)) {
    fmt::print(out, "# from {} bytes: {}\n", size_text(crossover.from_bytes),
               settings.candidates[crossover.candidate].name());
  }
}

nlohmann::ordered_json topology_json(Settings const& settings) {
  auto const& t = settings.topology;
  auto const link = [](sim::LinkSpeed const& speed) {
    return nlohmann::ordered_json{{"latency", speed.latency_s}, {"bandwidth", speed.bytes_per_s}, {"gap", speed.gap_s}};
  };
  return {{"name", settings.topology_name},
          {"ranks", t.ranks},
          {"ranks_per_host", t.ranks_per_host},
          {"inside", link(t.inside)},
          {"between", link(t.between)},
          {"shared_nic", t.shared_nic},
          {"rails", t.rails},
          {"hosts_per_leaf", t.hosts_per_leaf},
          {"oversubscription", t.oversubscription},
          {"spine_latency", t.spine_latency_s}};
}

nlohmann::ordered_json report_json(Settings const& settings, std::vector<Row> const& rows) {
  nlohmann::ordered_json report{{"operation", to_string(settings.operation)},
                                {"topology", topology_json(settings)},
                                {"seed", settings.seed},
                                {"jitter_s", settings.jitter_s},
                                {"reduction_bytes_per_s", settings.reduction_bytes_per_s},
                                {"stragglers", nlohmann::ordered_json::array()},
                                {"rows", nlohmann::ordered_json::array()},
                                {"crossovers", nlohmann::ordered_json::array()}};
  for (auto const& slow : settings.stragglers) {
    report["stragglers"].push_back(
        {{"rank", slow.rank}, {"factor", slow.factor}, {"delay_s", sim::to_seconds(slow.delay)}});
  }
  for (auto const& loss : settings.losses) {
    report["losses"].push_back({{"rank", loss.rank}, {"at_s", sim::to_seconds(loss.at)}});
  }
  if (!settings.losses.empty()) report["detection_s"] = settings.detection_s;
  for (auto const& row : rows) {
    nlohmann::ordered_json line{{"bytes", row.bytes}, {"bound_s", row.bound_s}, {"best", nullptr}};
    if (row.best < row.points.size()) line["best"] = settings.candidates[row.best].name();
    for (std::size_t i = 0; i < row.points.size(); ++i) {
      auto const& point = row.points[i];
      nlohmann::ordered_json entry{{"name", settings.candidates[i].name()},
                                   {"time_s", point.seconds},
                                   {"over_bound", nullptr},
                                   {"messages", point.messages},
                                   {"bytes_on_wire", point.bytes}};
      if (point.failed_ranks > 0) {
        entry["failed_ranks"] = point.failed_ranks;
        entry["error"] = point.error;
      }
      if (row.bound_s > 0) entry["over_bound"] = point.seconds / row.bound_s;
      if (settings.candidates[i].algorithm != nullptr) {
        entry["formula_s"] = point.formula_s;
        entry["chunk"] = point.chunk;
      }
      line["algorithms"].push_back(std::move(entry));
    }
    report["rows"].push_back(line);
  }
  for (auto const& crossover : crossovers(rows)) {
    report["crossovers"].push_back(
        {{"from_bytes", crossover.from_bytes}, {"algorithm", settings.candidates[crossover.candidate].name()}});
  }
  return report;
}

}  // namespace weft::simulate_tool
