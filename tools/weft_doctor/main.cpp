#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tool_output/numbers.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/version.hpp"
#include "weft_doctor/diagnosis.hpp"
#include "weft_doctor/paths.hpp"

namespace {

using weft::doctor::Finding;
using weft::doctor::Verdict;

constexpr int kCulprit = 1;
constexpr int kBadInput = 2;

void print_text(std::vector<Verdict> const& verdicts) {
  for (auto const& verdict : verdicts) {
    auto const called =
        verdict.name.empty() ? verdict.communicator : fmt::format("{}, {}", verdict.name, verdict.communicator);
    fmt::print("communicator {} ({} rank{}): {}\n", called, verdict.size, verdict.size == 1 ? "" : "s",
               verdict.sentence);
  }
}

void print_json(std::vector<Verdict> const& verdicts) {
  auto all = nlohmann::json::array();
  for (auto const& verdict : verdicts) {
    auto const call = verdict.call ? nlohmann::json(*verdict.call) : nlohmann::json();
    all.push_back({{"communicator", verdict.communicator},
                   {"name", verdict.name},
                   {"size", verdict.size},
                   {"finding", to_string(verdict.finding)},
                   {"culprits", verdict.culprits},
                   {"call", call},
                   {"sentence", verdict.sentence}});
  }
  fmt::print("{}\n", all.dump(2));
}

int show_paths(std::vector<std::string> const& files, bool as_json) {
  auto const paths = weft::doctor::summarise_paths(weft::doctor::read_dumps(files));
  auto all = nlohmann::json::array();
  for (auto const& one : paths) {
    auto const called = one.name.empty() ? one.communicator : fmt::format("{}, {}", one.name, one.communicator);
    if (!as_json) {
      fmt::print("communicator {}: {} {} of {}: {}\n", called, one.calls, one.calls == 1 ? "call" : "calls", one.call,
                 one.path);
    }
    all.push_back({{"communicator", one.communicator},
                   {"name", one.name},
                   {"call", one.call},
                   {"path", one.path},
                   {"calls", one.calls}});
  }
  if (as_json) fmt::print("{}\n", all.dump(2));
  return 0;
}

int examine(std::vector<std::string> const& paths, double least_wait_s, bool as_json) {
  auto const dumps = weft::doctor::read_dumps(paths);
  std::chrono::duration<double> const least_wait(least_wait_s);
  auto const verdicts =
      weft::doctor::diagnose(dumps, {.least_wait = std::chrono::duration_cast<std::chrono::nanoseconds>(least_wait)});
  if (as_json) {
    print_json(verdicts);
  } else {
    print_text(verdicts);
  }
  bool const healthy = std::all_of(verdicts.begin(), verdicts.end(),
                                   [](auto const& verdict) { return verdict.finding == Finding::nothing; });
  return healthy ? 0 : kCulprit;
}

/// Whether it is asked for anywhere.
bool is_about_topology(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](char const* word) { return std::string_view(word) == "--topology"; });
}

/// Becomes weft-topology, which lies beside this program: reading dumps must not need the library and its MPI.
int look_at_topology(char** argv) {
  std::error_code unknown;
  auto const program = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / "weft-topology";
  ::execv(program.c_str(), argv);
  fmt::print(stderr, "weft-doctor: --topology needs {}, which cannot be started: {}\n", program.string(),
             std::strerror(errno));
  return kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  if (is_about_topology(argc, argv)) return look_at_topology(argv);
  CLI::App app{
      "Reads what the ranks of a job wrote down about their last calls, and says which rank is missing from which call "
      "and what it does instead; where none is, which one comes late. weft-doctor --topology, started as a job is, "
      "looks at its hosts and measures their "
      "links.\nExit code 0: nothing is wrong; 1: something is; 2: the dumps cannot be used."};
  std::vector<std::string> paths;
  double least_wait_s = 1;
  bool as_json = false;
  bool paths_wanted = false;
  app.set_version_flag("--version", fmt::format("weft-doctor (weft) {}", WEFT_VERSION_STRING));
  app.add_option("dumps", paths, "weft-flight.*.json files of all ranks, or folders of them");
  app.add_option("--least-wait", least_wait_s, "seconds that a rank must have waited for another before that counts")
      ->check(weft::tool_output::finite())
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--paths", paths_wanted, "say instead how the calls' bytes went, and why calls were not zero-copy");
  app.add_flag("--json", as_json, "print it as JSON");
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "weft-doctor: {}; see --help\n", error.what());
    return kBadInput;
  }
  if (paths.empty()) {  // required() would be told of before a mistyped option
    fmt::print(
        stderr,
        "weft-doctor: which dumps? Name the weft-flight.*.json files of all ranks, or their folder; see --help\n");
    return kBadInput;
  }
  try {
    int const code = paths_wanted ? show_paths(paths, as_json) : examine(paths, least_wait_s, as_json);
    return weft::tool_output::exit_code("weft-doctor", code);
  } catch (std::exception const& trouble) {
    fmt::print(stderr, "weft-doctor: {}\n", trouble.what());
    return kBadInput;
  }
}
