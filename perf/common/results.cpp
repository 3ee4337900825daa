#include "common/results.hpp"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "common/names.hpp"
#include "weft/error.hpp"
#include "weft/version.hpp"

namespace weft::perf {
namespace {

constexpr double kMicroseconds = 1e6;

nlohmann::json timing_json(std::optional<Timing> const& timing, bool cpu_time) {
  if (!timing) return nullptr;
  nlohmann::json result{{cpu_time ? "cpu_time" : "time", timing->seconds * kMicroseconds},
                        {"alg_bw", timing->algorithm_gbps},
                        {"bus_bw", timing->bus_gbps},
                        {"nwrong", nullptr}};
  if (timing->wrong) result["nwrong"] = *timing->wrong;
  return result;
}

std::string link_text(Options const& options) {
  return options.link ? options.link->describe() : "";
}

nlohmann::json config_json(Options const& options) {
  nlohmann::json config{{"nthreads", options.threads},
                        {"ngpus", options.gpus},
                        {"minimum_bytes", options.min_bytes},
                        {"maximum_bytes", options.max_bytes},
                        {"warmup_iters", options.warmup},
                        {"iterations", options.loop.iterations},
                        {"aggregated_iterations", options.aggregate},
                        {"validation", options.checks},
                        {"graph", 0},
                        {"blocking_collectives", options.blocking != 0 ? "true" : "false"},
                        {"parallel_init", "false"},
                        {"memory", to_string(options.memory)},
                        {"unalign", options.unalign},
                        {"cpu_time", options.cpu_time},
                        {"rounds", options.rounds},
                        {"touch", options.loop.touch},
                        {"link", link_text(options)},
                        {"label", options.label}};
  if (options.step_factor > 1) {
    config["step_factor"] = options.step_factor;
  } else {
    config["step_bytes"] = options.step_bytes;
  }
  return config;
}

void set_us(nlohmann::json& line, char const* key, std::optional<double> const& seconds) {
  if (seconds) line[key] = *seconds * kMicroseconds;
}

/// Sets the keys of a line that both files share.
void set_detail(nlohmann::json& line, Detail const& detail) {
  line["rounds_kept"] = detail.rounds_kept;
  line["rounds"] = detail.rounds;
  line["canary_copy_us"] = detail.canary.copy * kMicroseconds;
  line["canary_barrier_us"] = detail.canary.barrier * kMicroseconds;
  line["canary_barrier_least_us"] = detail.least_canary.barrier * kMicroseconds;
  line["canary_work_us"] = detail.canary.work * kMicroseconds;
  line["canary_work_least_us"] = detail.least_canary.work * kMicroseconds;
  set_us(line, "cost_us", detail.cost);
  set_us(line, "call_base_us", detail.call_base);
  set_us(line, "cost_base_us", detail.cost_base);
  set_us(line, "limit_us", detail.limit);
  set_us(line, "peer_call_us", detail.peer_call);
  set_us(line, "peer_cost_us", detail.peer_cost);
  set_us(line, "peer_call_base_us", detail.peer_call_base);
  set_us(line, "peer_cost_base_us", detail.peer_cost_base);
  if (detail.overlap) line["overlap_percent"] = *detail.overlap;
}

}  // namespace

std::vector<Column> extra_columns(Options const& options) {
  std::vector<Column> columns;
  if (options.device == DeviceType::cuda) {
    if (options.cost) columns.push_back({"host", "(us)"});
    if (options.compare_nccl) columns.insert(columns.end(), {{"nccl", "(us)"}, {"nccl/t", ""}});
    if (options.compare_nccl && options.cost) columns.push_back({"nccl host", "(us)"});
    return columns;
  }
  if (options.cost) columns.push_back({"cost", "(us)"});
  if (options.limit) columns.insert(columns.end(), {{"limit", "(us)"}, {"t/limit", ""}});
  if (options.compare_mpi) columns.insert(columns.end(), {{"mpi", "(us)"}, {"mpi/t", ""}});
  if (options.compare_mpi && options.cost) columns.insert(columns.end(), {{"mpi cost", "(us)"}, {"mpi/cost", ""}});
  if (options.overlap) columns.push_back({"overlap", "(%)"});
  return columns;
}

std::vector<std::string> extra_texts(Options const& options, Detail const& detail) {
  std::vector<std::string> texts;
  auto const us = [&](std::optional<double> const& seconds) { texts.push_back(us_text(seconds.value_or(0))); };
  auto const over = [&](std::optional<double> const& a, std::optional<double> const& b) {
    texts.push_back(ratio_text(ratio(a.value_or(0), b.value_or(0))));
  };
  if (options.cost) us(detail.cost);
  if (options.compare_nccl) {
    us(detail.peer_call);
    over(detail.peer_call, detail.call);
    if (options.cost) us(detail.peer_cost);
  }
  if (options.limit) {
    us(detail.limit);
    over(detail.call, detail.limit);
  }
  if (options.compare_mpi) {
    us(detail.peer_call);
    over(detail.peer_call, detail.call);
  }
  if (options.compare_mpi && options.cost) {
    us(detail.peer_cost);
    over(detail.peer_cost, detail.cost);
  }
  if (options.overlap) texts.push_back(fmt::format("{:.1f}", detail.overlap.value_or(0)));
  return texts;
}

nlohmann::json json_line(Case const& what, Options const& options, int ranks, Line const& line, Detail const& detail) {
  nlohmann::json result{{"library", "weft"},
                        {"version", WEFT_VERSION_STRING},
                        {"op", what.name()},
                        {"device", options.device == DeviceType::cuda ? "cuda" : "cpu"},
                        {"memory", to_string(options.memory)},
                        {"ranks", ranks},
                        {"bytes", line.bytes},
                        {"time_us", detail.call * kMicroseconds},
                        {"label", options.label},
                        {"type", nccl_name(line.dtype)},
                        {"redop", line.op},
                        {"root", line.root},
                        {"touch", options.loop.touch},
                        {"link", link_text(options)},
                        {"call_us", detail.call * kMicroseconds}};
  set_detail(result, detail);
  if (detail.peer_call) result["peer"] = options.compare_nccl ? "nccl" : "mpi";
  for (auto const* timing : {&line.out_of_place, &line.in_place}) {
    if (*timing && (*timing)->wrong) result["wrong"] = result.value("wrong", 0.0) + *(*timing)->wrong;
  }
  return result;
}

bool can_append(std::string const& path) {
  return static_cast<bool>(std::ofstream(path, std::ios::app));
}

void append_json_lines(std::string const& path, std::vector<nlohmann::json> const& lines) {
  std::ofstream file(path, std::ios::app);
  for (auto const& line : lines) file << line.dump() << '\n';
  file.close();
  if (!file) throw Error(ErrorCode::system, fmt::format("--json: cannot write {}", path));
}

JsonDocument::JsonDocument(Case const& what, Options const& options, std::vector<RankPlace> const& places)
    : name_(what.name() + "_perf") {
  constexpr int kNcclTestsFormat = 2;
  auto devices = nlohmann::json::array();
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    devices.push_back({{"rank", rank},
                       {"group", 0},
                       {"pid", places[rank].pid},
                       {"hostname", places[rank].host},
                       {"device", places[rank].device},
                       {"device_hex", places[rank].bus_id},
                       {"device_info", places[rank].name}});
  }
  document_ = {{"version", kNcclTestsFormat},    {"start_time", now_text()},
               {"args", options.arguments},      {"weft_version", WEFT_VERSION_STRING},
               {"config", config_json(options)}, {"results", nlohmann::json::array()}};
  document_["config"]["devices"] = devices;
}

void JsonDocument::add(Line const& line, Detail const& detail) {
  bool const cpu_time = document_["config"]["cpu_time"];
  nlohmann::json result{{"size", line.bytes},
                        {"count", line.count},
                        {"type", nccl_name(line.dtype)},
                        {"redop", line.op},
                        {"root", fmt::format("{:6}", line.root)},
                        {"out_of_place", timing_json(line.out_of_place, cpu_time)},
                        {"in_place", timing_json(line.in_place, cpu_time)},
                        {"actual_iterations", detail.iterations},
                        {"experiment_name", name_}};
  set_detail(result, detail);
  if (!line.timestamp.empty()) result["timestamp"] = line.timestamp;
  document_["results"].push_back(std::move(result));
}

void JsonDocument::write(std::string const& path, Totals const& totals) {
  auto const verdict = [](bool okay) { return okay ? "true" : "false"; };
  document_["out_of_bounds"] = {{"count", totals.wrong}, {"okay", verdict(totals.wrong == 0)}};
  document_["average_bus_bandwidth"] = {{"bandwidth", totals.average_gbps},
                                        {"okay", totals.fast_enough ? verdict(*totals.fast_enough) : "unchecked"}};
  document_["disturbed"] = {{"lines", totals.lines}, {"without_undisturbed_round", totals.disturbed}};
  document_["errors"] = nlohmann::json::array();
  document_["end_time"] = now_text();
  std::ofstream file(path, std::ios::trunc);
  file << document_.dump(1) << '\n';
  file.close();
  if (!file) throw Error(ErrorCode::system, fmt::format("-J: cannot write {}", path));
}

}  // namespace weft::perf
