#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tool_output/interruption.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/cluster.hpp"
#include "weft/error.hpp"
#include "weft/op_graph_json.hpp"
#include "weft_schedule/outcome.hpp"
#include "weft_schedule/picture.hpp"
#include "weft_schedule/plan_file.hpp"
#include "weft_schedule/report.hpp"
#include "weft_schedule/settings.hpp"
#include "weft_schedule/trace_file.hpp"

namespace {

using namespace weft::schedule_tool;
using weft::Schedule;

using weft::tool_output::NamedFile;
using weft::tool_output::write_file;

constexpr int kDoesNotFit = 1;
constexpr int kBadInput = 2;
constexpr int kInternalError = 70;  ///< EX_SOFTWARE of sysexits.h

/// A step that does not fit with the changes is told beside the plan of what was given.
WhatIf plan_what_if(Case planned, Settings const& settings) {
  WhatIf what_if{.changes = settings.what_if};
  try {
    what_if.outcome = plan_case(std::move(planned), settings, settings.what_if);
  } catch (weft::Error const& error) {
    if (error.code() != weft::ErrorCode::out_of_memory) throw;
    what_if.misfit = error.what();
  }
  return what_if;
}

/// Before anything is planned.
void check_files(Settings const& settings) {
  std::vector<NamedFile> const outputs{{"--plan", settings.plan_file},
                                       {"--trace", settings.trace},
                                       {"--plot", settings.picture},
                                       {"--json", settings.json},
                                       {"--graph-out", settings.graph_out}};
  std::vector<NamedFile> inputs{{"the graph", settings.graph}, {"--measured", settings.measured}};
  auto const clusters = weft::cluster_names();
  bool const is_named = std::find(clusters.begin(), clusters.end(), settings.cluster) != clusters.end();
  if (!is_named) inputs.push_back({"--cluster", settings.cluster});
  weft::tool_output::check_distinct(outputs, inputs);
  for (auto const& output : outputs) weft::tool_output::check_writable(output.path);
  if (!settings.picture.empty()) check_drawing();
}

/// Where the table goes: what is written to standard output is for a program, and stands there alone.
std::FILE* table_of(Settings const& settings) {
  for (auto const* path : {&settings.plan_file, &settings.trace, &settings.json, &settings.graph_out}) {
    if (*path == "-") return stderr;
  }
  return stdout;
}

int run(Settings const& settings) {
  check_files(settings);
  auto const changes = parse_changes(settings.what_if);
  auto const measured = read_measured(settings);
  Case planned = read_case(settings);
  std::optional<Case> changed;  // read before the search: what it cannot be is said at once
  if (!changes.empty()) changed = read_case(settings, changes);
  // With --recompute the graph that is planned is another one.
  auto const write_graph_of = [&](weft::OpGraph const& graph) {
    write_file(settings.graph_out, [&](std::ostream& out) { weft::write_graph(graph, out); });
  };
  if (!settings.recompute) write_graph_of(planned.graph);
  Outcome const outcome = plan_case(std::move(planned), settings, "", measured ? &*measured : nullptr);
  if (settings.recompute) write_graph_of(outcome.planned.graph);
  std::optional<WhatIf> what_if;
  if (changed) what_if = plan_what_if(std::move(*changed), settings);
  int const exit_code = weft::tool_output::interrupted_or(what_if && !what_if->outcome ? kDoesNotFit : 0);
  if (weft::tool_output::is_interrupted())
    fmt::print(stderr, "weft-schedule: interrupted; the best plans until then:\n");

  Schedule const& main = outcome.main_schedule();
  print_report(table_of(settings), outcome, what_if);
  write_file(settings.json, [&](std::ostream& out) { out << report_json(outcome, what_if).dump(2) << '\n'; });
  write_file(settings.trace, [&](std::ostream& out) { write_timeline(outcome.planned.graph, main, out); });
  if (settings.plan_file.empty() && settings.picture.empty()) return exit_code;
  auto const plan = plan_json(outcome.planned.graph, outcome.planned.cluster, main);
  write_file(settings.plan_file, [&](std::ostream& out) { out << plan.dump() << '\n'; });
  if (!settings.picture.empty()) draw(plan, report_json(outcome, what_if), settings.picture);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  auto const arguments = parse_arguments(argc, argv);
  if (!arguments.settings) return arguments.exit_code;
  try {
    weft::tool_output::remember_interruption();
    return weft::tool_output::exit_code("weft-schedule", run(*arguments.settings));
  } catch (weft::Error const& trouble) {
    fmt::print(stderr, "weft-schedule: {}\n", trouble.what());
    return trouble.code() == weft::ErrorCode::out_of_memory ? kDoesNotFit : kBadInput;
  } catch (InternalError const& trouble) {
    fmt::print(stderr, "weft-schedule: {}\n", trouble.what());
    return kInternalError;
  } catch (std::exception const& trouble) {
    fmt::print(stderr, "weft-schedule: {}\n", trouble.what());
    return kBadInput;
  }
}
