#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "plot_script/plot_script.hpp"
#include "weft_simulate/report.hpp"
#include "weft_simulate/step.hpp"

namespace {

using namespace weft::simulate_tool;

constexpr int kBadInput = 2;

/// Before anything is simulated: what cannot be written is said at once.
void check_writable(std::string const& path) {
  if (path.empty() || path == "-") return;
  auto const folder = std::filesystem::absolute(path).parent_path();
  auto const there = std::filesystem::exists(path);
  if (std::filesystem::is_directory(path) || access((there ? path : folder.string()).c_str(), W_OK) != 0) {
    throw std::runtime_error(fmt::format("{}: cannot be written", path));
  }
}

/// Prints the table, and returns the same as JSON.
nlohmann::ordered_json tell(Settings const& settings) {
  auto* const out = settings.json == "-" ? stderr : stdout;
  if (settings.step) {
    auto const result = simulate_step(settings);
    print_step(out, settings, result);
    return step_json(settings, result);
  }
  auto const rows = predict(settings);
  print_report(out, settings, rows);
  return report_json(settings, rows);
}

void run(Settings const& settings) {
  check_writable(settings.json);
  check_writable(settings.picture);
  auto const report = tell(settings);
  if (settings.json == "-") std::cout << report.dump(2) << '\n';
  if (!settings.json.empty() && settings.json != "-") {
    std::ofstream file(settings.json);
    if (file) file << report.dump(2) << '\n';
    if (!file.flush()) throw std::runtime_error(fmt::format("{}: cannot be written", settings.json));
  }
  if (settings.picture.empty()) return;
  weft::plot_tool::run_plot_script("plot_simulation.py", "- " + weft::plot_tool::quoted(settings.picture),
                                   report.dump());
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
  return 0;
}
