// weft-doctor --topology: started as a job's ranks are, by mpirun, torchrun or srun.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
#include <weft/weft.hpp>

#include "collectives/texts.hpp"
#include "core/host_identity.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/version.hpp"
#include "weft_topology/host.hpp"
#include "weft_topology/links.hpp"
#include "weft_topology/report.hpp"
#include "weft_topology/slow.hpp"

namespace {

using weft::topology::Host;

constexpr int kBadUsage = 2;
constexpr std::size_t kMostPairs = 2048;

/// What every rank sees, in rank order.
std::vector<Host> look_everywhere(weft::Communicator& world) {
  auto here = weft::topology::look_at_this_host();
  here.identity = weft::host_identity(weft::Config::from_environment());
  std::vector<Host> seen;
  for (auto const& text : gather_texts(world, nlohmann::json(here).dump())) {
    seen.push_back(nlohmann::json::parse(text).get<Host>());
  }
  return seen;
}

int examine(weft::Communicator& world, weft::topology::LinkOptions const& options, bool as_json) {
  auto report = weft::topology::report_of(look_everywhere(world));
  auto const pairs = weft::topology::pairs_of(report.host_of, kMostPairs);
  report.links = weft::topology::measure_links(world, pairs, options);
  std::vector<std::string> names;
  for (auto const& host : report.hosts) names.push_back(host.name);
  report.slow = weft::topology::find_slow(report.links, report.host_of, names);
  if (world.rank() == 0) fmt::print("{}", as_json ? json_of(report).dump(2) + "\n" : text_of(report));
  return weft::tool_output::exit_code("weft-topology", 0);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "What the hosts of a job have (cores, network cards, GPUs) and what messages between its ranks take, measured. "
      "Start it as the job is started: mpirun … weft-doctor --topology. Names what is slower than the rest. "
      "Exit code 0 whatever it finds: scripts read \"slow\" of --json.",
      "weft-doctor --topology"};
  weft::topology::LinkOptions options;
  bool asked = false;
  bool as_json = false;
  app.set_version_flag("--version", fmt::format("weft-topology (weft) {}", WEFT_VERSION_STRING));
  app.add_flag("--topology", asked, "what this is");
  app.add_option("--bytes", options.bytes, "of the messages that bandwidth is taken from")
      ->check(CLI::Range(std::size_t{1} << 12, std::size_t{1} << 30))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "of which the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--json", as_json, "print it as JSON");
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    return app.exit(error) == 0 ? weft::tool_output::exit_code("weft-topology", 0) : kBadUsage;
  }
  return weft::launch({}, [&](weft::Communicator& world) { return examine(world, options, as_json); });
}
