#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "graph_input/graph_options.hpp"
#include "tool_output/interruption.hpp"
#include "tool_output/numbers.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/memory_plan.hpp"
#include "weft/version.hpp"
#include "weft_memory/graph_memory.hpp"
#include "weft_memory/problem_csv.hpp"

namespace {

using weft::MemoryPlan;
using weft::memory_tool::Problem;
using weft::tool_output::write_file;

constexpr int kDoesNotFit = 1;
constexpr int kBadInput = 2;
constexpr std::int64_t kGraphAlignment = 256;  ///< what GPUs' memory operations like best

struct Settings : weft::graph_tool::GraphSource {
  std::string output;
  std::string json;
  std::optional<std::int64_t> capacity;
  double time_limit_s = 10;
  int threads = 0;
  std::optional<std::int64_t> alignment;
};

/// A table of buffers, as told from a graph by how it begins; standard input is one.
bool is_table(Settings const& settings) {
  if (!settings.model.empty()) return false;
  if (settings.graph == "-") return true;
  auto const ends_with = [&](std::string_view end) {
    return settings.graph.size() >= end.size() &&
           settings.graph.compare(settings.graph.size() - end.size(), end.size(), end) == 0;
  };
  if (ends_with(".hlo") || ends_with(".txt")) return false;
  if (std::filesystem::is_directory(settings.graph)) {
    throw std::runtime_error(fmt::format("{}: is a directory", settings.graph));
  }
  std::ifstream file(settings.graph);
  char first = 0;
  return !(file >> first) || (first != '{' && first != '[');
}

Problem read(std::istream& in, std::string const& source) {
  Problem problem = weft::memory_tool::read_problem(in, source);
  weft::memory_tool::check(problem, source);
  return problem;
}

Problem read(std::string const& path) {
  if (path == "-") return read(std::cin, "standard input");
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be opened for reading", path));
  return read(file, path);
}

std::chrono::milliseconds time_limit(Settings const& settings) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(settings.time_limit_s * 1000));
}

MemoryPlan plan(Settings const& settings, Problem const& problem) {
  weft::MemoryPlanOptions options;
  options.capacity = settings.capacity;
  options.time_limit = time_limit(settings);
  options.threads = settings.threads;
  options.stop = weft::tool_output::is_interrupted;
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [](weft::MemoryPlanProgress const& now) {
      fmt::print(stderr, "\r{:.0f} s: {} bytes found, at least {} needed ",
                 std::chrono::duration<double>(now.elapsed).count(), now.bytes, now.least_bytes);
      static_cast<void>(std::fflush(stderr));
    };
  }
  MemoryPlan found = weft::plan_memory(problem.buffers, options);
  if (options.progress) fmt::print(stderr, "\r\033[K");
  return found;
}

/// What is known of the capacity, or of the plan where there is none.
std::string verdict_of(MemoryPlan const& plan, std::optional<std::int64_t> capacity) {
  if (capacity && plan.bytes <= *capacity) return "fits";
  if (capacity && plan.least_bytes > *capacity) return "cannot fit";
  if (capacity) return "not found";
  return plan.bytes == plan.least_bytes ? "best" : "best so far";
}

int run_table(Settings const& settings) {
  Problem problem = read(settings.graph);
  if (settings.alignment) weft::memory_tool::align(problem, *settings.alignment);
  auto const begin = std::chrono::steady_clock::now();
  MemoryPlan const found = plan(settings, problem);
  double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::string const verdict = verdict_of(found, settings.capacity);

  auto* const text = settings.output == "-" || settings.json == "-" ? stderr : stdout;
  fmt::print(text, "{} buffers, most live {} bytes, plan {} bytes ({:.4f}x), no plan below {}: {}, {:.2f} s\n",
             problem.buffers.size(), found.live_bytes, found.bytes,
             found.live_bytes > 0 ? static_cast<double>(found.bytes) / static_cast<double>(found.live_bytes) : 1.0,
             found.least_bytes, verdict, seconds);
  write_file(settings.output, [&](std::ostream& out) { write_solution(out, problem, found.offsets); });
  if (!settings.json.empty()) {
    nlohmann::json const json{{"buffers", problem.buffers.size()},
                              {"capacity", settings.capacity ? nlohmann::json(*settings.capacity) : nlohmann::json()},
                              {"live_bytes", found.live_bytes},
                              {"plan_bytes", found.bytes},
                              {"least_bytes", found.least_bytes},
                              {"verdict", verdict},
                              {"planning_s", seconds}};
    write_file(settings.json, [&](std::ostream& out) { out << json.dump(2) << '\n'; });
  }
  return settings.capacity && found.bytes > *settings.capacity ? kDoesNotFit : 0;
}

std::string verdict_of(weft::TensorPlan const& plan, std::optional<std::int64_t> capacity) {
  if (!capacity) return "no capacity given";
  if (plan.memory.bytes <= *capacity) return "fits";
  return plan.bound_bytes > *capacity ? "no order fits" : "not found";
}

int run_graph(Settings const& settings) {
  using namespace weft::memory_tool;
  weft::OpGraph const graph = weft::graph_tool::read(settings, settings.plan);
  auto const orders = plan_orders(graph, {.alignment = settings.alignment.value_or(kGraphAlignment),
                                          .capacity = settings.capacity,
                                          .time_limit = time_limit(settings),
                                          .threads = settings.threads,
                                          .stop = weft::tool_output::is_interrupted});
  weft::TensorPlan const& weft = orders.front().plan;
  std::string const verdict = verdict_of(weft, settings.capacity);
  fmt::print(settings.output == "-" || settings.json == "-" ? stderr : stdout, "{}",
             orders_table(graph, orders, verdict));
  write_file(settings.output, [&](std::ostream& out) { write_solution(out, buffer_table(weft), weft.memory.offsets); });
  write_file(settings.json,
             [&](std::ostream& out) { out << orders_json(graph, orders, settings.capacity, verdict).dump(2) << '\n'; });
  return settings.capacity && weft.memory.bytes > *settings.capacity ? kDoesNotFit : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Plans where buffers lie in one piece of memory: of a table that says when each is needed (id,lower,upper,size"
      "[,alignment][,gaps], as minimalloc's benchmarks), or of a graph, whose operators' order it plans as well.\n"
      "Exit code 0: done; 1: no plan within --capacity was found; 2: bad usage or input; 130: interrupted (Ctrl-C), "
      "with "
      "the best found until then."};
  Settings settings;
  app.set_version_flag("--version", fmt::format("weft-memory (weft) {}", WEFT_VERSION_STRING));
  weft::graph_tool::add_options(app, settings);
  app.get_option("graph")->description("a table (- reads one from standard input), or " +
                                       app.get_option("graph")->get_description());
  app.add_option("--capacity", settings.capacity,
                 "bytes there are (K, M, G: 10^3, …; Ki, Mi, Gi: 2^10, …): stop at the first plan that fits")
      ->transform(CLI::AsSizeValue(true));
  app.add_option("-o,--output", settings.output, "write the table with an offset column (- for standard output)");
  app.add_option("--json", settings.json, "write the figures as JSON (- for standard output)");
  app.add_option("--time-limit", settings.time_limit_s, "seconds after which the best plans so far are taken")
      ->check(weft::tool_output::finite())
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--alignment", settings.alignment, "that every offset has at least, in bytes; left out, a table's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->default_str(fmt::format("{} of a graph", kGraphAlignment));
  app.add_option("--threads", settings.threads, "that search; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    weft::graph_tool::check_options(app, settings);
  } catch (CLI::ParseError const& error) {
    return app.exit(error) == 0 ? weft::tool_output::exit_code("weft-memory", 0) : kBadInput;
  }
  try {
    weft::tool_output::check_distinct({{"--output", settings.output}, {"--json", settings.json}},
                                      {{"the input", settings.graph}});
    weft::tool_output::check_writable(settings.output);
    weft::tool_output::check_writable(settings.json);
    weft::tool_output::remember_interruption();
    int const code = is_table(settings) ? run_table(settings) : run_graph(settings);
    if (weft::tool_output::is_interrupted())
      fmt::print(stderr, "weft-memory: interrupted; this was the best until then\n");
    return weft::tool_output::exit_code("weft-memory", weft::tool_output::interrupted_or(code));
  } catch (std::exception const& trouble) {
    fmt::print(stderr, "weft-memory: {}\n", trouble.what());
    return kBadInput;
  }
}
