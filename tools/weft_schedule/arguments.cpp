#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "graph_input/graph_options.hpp"
#include "tool_output/numbers.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/cluster.hpp"
#include "weft/version.hpp"
#include "weft_schedule/amounts.hpp"
#include "weft_schedule/settings.hpp"

namespace weft::schedule_tool {

namespace {

constexpr int kBadUsage = 2;
constexpr char const* kAbout =
    "Plans when each operator of a training step runs, and says how far that is from the best there can be.\n"
    "Exit code 0: done; 1: no order was found that fits the memory, or that of --what-if (what was given is planned "
    "then);\n"
    "2: bad usage or input; 70: a plan is shorter than its bound, an internal error; 130: interrupted (Ctrl-C), with "
    "the\n"
    "best plans found until then.";
constexpr char const* kOutput = "Output";

void add_output(CLI::App& app, Settings& settings) {
  app.add_option("--plan", settings.plan_file, "write the plan (docs/plan-file.md), as tools/check_plan.py reads it")
      ->group(kOutput);
  app.add_option("--trace", settings.trace, "write the timeline for Perfetto or chrome://tracing")->group(kOutput);
  app.add_option("--plot", settings.picture, "draw the timeline, its memory and all policies as PNG (needs matplotlib)")
      ->check([](std::string const& path) {
        return path.size() > 4 && path.compare(path.size() - 4, 4, ".png") == 0 ? std::string()
                                                                                : path + ": a PNG has to end in .png";
      })
      ->group(kOutput);
  app.add_option("--json", settings.json, "write the figures as JSON (- for standard output)")->group(kOutput);
  app.add_option("--graph-out", settings.graph_out, "write the graph in JSON (docs/op-graph.md)")->group(kOutput);
}

constexpr std::string_view kPrefetch = "prefetch";
constexpr int kMostAhead = 9999;

/// "prefetch3": 3; 0 for what is no such thing.
int depth_in(std::string_view name) {
  if (name.substr(0, kPrefetch.size()) != kPrefetch) return 0;
  name.remove_prefix(kPrefetch.size());
  int depth = 0;
  auto const [end, error] = std::from_chars(name.data(), name.data() + name.size(), depth);
  bool const whole = error == std::errc() && end == name.data() + name.size();
  return whole && depth >= 1 && depth <= kMostAhead ? depth : 0;
}

/// @throws CLI::ValidationError naming those there are.
std::vector<PolicyChoice> parse_policies(std::string const& text) {
  std::vector<PolicyChoice> all;
  std::vector<std::string> names;
  for (int i = 0; i < kSchedulePolicies; ++i) {
    all.push_back({static_cast<SchedulePolicy>(i)});
    names.push_back(all.back().name());
  }
  if (text == "all") return all;
  std::vector<PolicyChoice> chosen;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    auto const found = std::find(names.begin(), names.end(), part);
    int const depth = depth_in(part);
    if (found == names.end() && depth == 0) {
      throw CLI::ValidationError(
          "--policy",
          fmt::format("there is no \"{}\"; there are all, {}, and prefetch3 and so on", part, fmt::join(names, ", ")));
    }
    auto const policy = found == names.end() ? PolicyChoice{SchedulePolicy::settings, depth}
                                             : all[static_cast<std::size_t>(found - names.begin())];
    if (std::find(chosen.begin(), chosen.end(), policy) == chosen.end()) chosen.push_back(policy);
  }
  if (!text.empty() && text.back() == ',') throw CLI::ValidationError("--policy", "names nothing after its last comma");
  if (chosen.empty()) throw CLI::ValidationError("--policy", "names none");
  return chosen;
}

/// What would have no effect is refused.
void check_combination(Settings& settings) {
  auto& again = settings.plan.recompute;
  settings.recompute = again == std::vector<std::string>{"auto"};
  if (settings.recompute) again.clear();
  if (std::find(again.begin(), again.end(), "auto") != again.end()) {
    throw CLI::ValidationError("--recompute", "auto stands alone");
  }
  if (settings.recompute_collectives && !settings.recompute) {
    throw CLI::ValidationError("--recompute-collectives", "is for --recompute auto");
  }
  if (settings.cluster.empty()) {
    throw CLI::ValidationError("--cluster", fmt::format("is missing: the machine to plan for, {}, or a JSON file of "
                                                        "your own (docs/scheduler.md#clusters)",
                                                        fmt::join(cluster_names(), ", ")));
  }
  if (settings.model.empty() && !again.empty()) {
    throw CLI::ValidationError("--recompute", "of a graph is auto; operators are named of a --model");
  }
}

}  // namespace

std::string PolicyChoice::name() const {
  return prefetch_depth > 0 ? fmt::format("{}{}", kPrefetch, prefetch_depth) : std::string(to_string(policy));
}

Arguments parse_arguments(int argc, char** argv) {
  CLI::App app{kAbout};
  Settings settings;
  std::string policies = "all";
  app.set_version_flag("--version", fmt::format("weft-schedule (weft) {}", WEFT_VERSION_STRING));
  app.add_option("--cluster", settings.cluster,
                 fmt::format("{}, or a JSON file (docs/scheduler.md)", fmt::join(cluster_names(), ", ")));
  app.add_option("--memory", settings.memory,
                 "bytes of one rank: 80G, 70Gi, or 1.3x the least that the transients of an order without overlap "
                 "take; left out: the cluster's");
  app.add_option("--policy", policies, "some of them, with commas, or all; also prefetch3 and deeper")
      ->capture_default_str();
  app.add_option("--contention", settings.contention, "computing takes 1 + this as long while a collective runs")
      ->check(tool_output::finite())
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--what-if", settings.what_if,
                 fmt::format("plan that as well and compare: link=2x,memory=40G; of {}", kChangeKeys))
      ->check([](std::string const& text) { return text.empty() ? std::string("names no change") : std::string(); });
  app.add_option("--time-limit", settings.time_limit_s, "seconds for each policy's search")
      ->check(tool_output::finite())
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--recompute-collectives", settings.recompute_collectives,
               "collectives may be repeated by --recompute auto");
  app.add_option_function<std::string>(
         "--seed", [&settings](std::string const& text) { settings.seed = tool_output::parse_seed(text); },
         "of the random policy: a whole number")
      ->default_str("1");
  app.add_flag("--replay", settings.replay,
               "how long the plans take where operators take other times: each 20 % more or less by chance, links 20 % "
               "slower and computing faster, and the reverse");
  app.add_option("--measured", settings.measured,
                 "a torch.profiler trace of the step: the plan is set beside what was measured, operator by operator");
  graph_tool::add_options(app, settings);
  auto* const recompute = app.get_option("--recompute");  // here of a graph too
  recompute->group(app.get_option("--seed")->get_group());
  recompute->description("auto: what has to be computed again to fit the memory is chosen; or, " +
                         recompute->get_description());
  add_output(app, settings);
  try {
    app.parse(argc, argv);
    settings.policies = parse_policies(policies);
    graph_tool::check_options(app, settings);
    check_combination(settings);
  } catch (CLI::ParseError const& error) {
    return {{}, app.exit(error) == 0 ? tool_output::exit_code("weft-schedule", 0) : kBadUsage};
  }
  return {std::move(settings), 0};
}

}  // namespace weft::schedule_tool
