#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <ostream>

#include "plot_script/plot_script.hpp"
#include "tool_output/tool_output.hpp"
#include "weft_simulate/report.hpp"
#include "weft_simulate/step.hpp"
#include "weft_simulate/topology_file.hpp"

namespace {

using namespace weft::simulate_tool;
using weft::tool_output::check_distinct;
using weft::tool_output::check_writable;

constexpr int kBadInput = 2;

/// Prints the table, and returns the same as JSON.
nlohmann::ordered_json tell(Settings const& settings) {
  auto* const out = settings.json == "-" ? stderr : stdout;
  if (settings.step) {
    auto const result = simulate_step(settings);
    print_step(out, settings, result);
    return step_json(settings, result);
  }
  print_heading(out, settings);
  auto const rows = predict(settings, [&](Row const& row) { print_row(out, row); });
  print_failure(out, settings, rows);
  print_crossovers(out, settings, rows);
  return report_json(settings, rows);
}

constexpr char const* kPlotScript = "plot_simulation.py";

void run(Settings const& settings) {
  auto const presets = preset_names();
  bool const is_preset = std::find(presets.begin(), presets.end(), settings.topology_name) != presets.end();
  check_distinct({{"--json", settings.json}, {"--plot", settings.picture}},
                 {{"--topology", is_preset ? "" : settings.topology_name}});
  check_writable(settings.json);
  check_writable(settings.picture);
  if (!settings.picture.empty()) weft::plot_tool::check_plot_script(kPlotScript);
  auto const report = tell(settings);
  weft::tool_output::write_file(settings.json, [&](std::ostream& out) { out << report.dump(2) << '\n'; });
  if (settings.picture.empty()) return;
  weft::plot_tool::run_plot_script(kPlotScript, "- " + weft::plot_tool::quoted(settings.picture), report.dump());
}

}  // namespace

int main(int argc, char** argv) {
  auto const arguments = parse_arguments(argc, argv);
  if (!arguments.settings) return arguments.exit_code;
  try {
    run(*arguments.settings);
  } catch (std::exception const& trouble) {
    fmt::print(stderr, "weft-simulate: {}\n", trouble.what());
    return kBadInput;
  }
  return weft::tool_output::exit_code("weft-simulate", 0);
}
