#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <sstream>

#include "tool_output/numbers.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/error.hpp"
#include "weft/version.hpp"
#include "weft_simulate/settings.hpp"
#include "weft_simulate/topology_file.hpp"

namespace weft::simulate_tool {
namespace {

constexpr int kBadUsage = 2;
constexpr int kMostRanks = 16384;                              // two memory mappings each
constexpr std::size_t kMostLayerBytes = std::size_t{4} << 30;  // whose addresses are there, if not the memory
constexpr double kMostMessagesUnasked = 10e6;                  // some seconds for each size
constexpr char const* kAbout =
    "Predicts what collectives take between ranks that are not there: runs the library's algorithms on a virtual clock "
    "over\n"
    "a described network, and sets them beside the least that network allows. --step runs the library's buckets there, "
    "too,\n"
    "and says how much of a training step's communication is hidden. Times are of links, not of anybody's CPU.\n"
    "Exit code 0: done; 2: bad usage or input.";

/// What is said of a rank is said once.
template <typename Said>
void refuse_twice(std::vector<Said> const& all, char const* option) {
  std::set<int> ranks;
  for (auto const& one : all) {
    if (ranks.insert(one.rank).second) continue;
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: rank {} is named twice", option, one.rank));
  }
}

/// As the command line has it.
struct Texts {
  std::string topology = "flat";
  std::string operation = "all_reduce";
  std::string algorithms = "all";
  std::string sizes = "1K-64M";
  std::string chunk = "best";
  std::string stragglers;
  std::string losses;
  std::string detection;
  std::string jitter;
  std::string step;
  std::string forward;
  std::string bucket = "25M";
  bool overlap = true;
  bool flat = false;
  int ranks = 0;
  int ranks_per_host = 0;
};

std::vector<std::string_view> operation_names() {
  std::vector<std::string_view> names;
  for (auto const& each : p2p::algorithms()) {
    auto const name = to_string(each.operation);
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

Operation parse_operation(std::string const& name) {
  for (auto const& each : p2p::algorithms()) {
    if (to_string(each.operation) == name) return each.operation;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("--op: there is no \"{}\"; there are {}", name, fmt::join(operation_names(), ", ")));
}

/// Whether real jobs there would combine inside hosts first.
bool goes_by_hosts(sim::Topology const& topology) noexcept {
  return topology.ranks_per_host > 1 && topology.ranks > topology.ranks_per_host;
}

/// What there is for an operation; by hosts only where hosts have several ranks, and for what is not left to all ranks.
std::vector<Candidate> candidates_for(Operation operation, sim::Topology const& topology) {
  std::vector<Candidate> all;
  for (auto const& each : p2p::algorithms()) {
    if (each.operation == operation) all.push_back({&each});
  }
  auto const is_flat = operation == Operation::scan || operation == Operation::barrier;
  if (goes_by_hosts(topology) && !is_flat) all.push_back({});
  return all;
}

/// Of all ranks together, about, however many bytes move; 0 where nothing says how many.
double messages_of(Candidate const& candidate, int ranks) {
  if (candidate.algorithm == nullptr) return 0;
  p2p::CostQuestion question;
  question.ranks = ranks;
  question.alpha_s = question.message_s = 1;
  return candidate.algorithm->cost_s(question) * ranks;
}

/// Without those that take minutes for each size, which are named on stderr; all where there would be none.
std::vector<Candidate> without_the_longest(std::vector<Candidate> const& all, int ranks) {
  std::vector<Candidate> chosen;
  std::vector<std::string_view> others;
  for (auto const& each : all) {
    if (messages_of(each, ranks) <= kMostMessagesUnasked) {
      chosen.push_back(each);
    } else {
      others.push_back(each.name());
    }
  }
  if (chosen.empty() || others.empty()) return all;
  fmt::print(stderr,
             "weft-simulate: left out, as {} ranks send more than {:.0f} million messages by it: {}; --algorithm "
             "asks for it\n",
             ranks, kMostMessagesUnasked / 1e6, fmt::join(others, ", "));
  return chosen;
}

std::vector<Candidate> parse_algorithms(std::vector<Candidate> const& all, Operation operation, int ranks,
                                        std::string const& text) {
  if (text == "all") return without_the_longest(all, ranks);
  std::vector<Candidate> chosen;
  std::istringstream parts(text);
  auto const is_named = [](std::string const& name) {
    return [&name](Candidate const& each) { return each.name() == name; };
  };
  for (std::string part; std::getline(parts, part, ',');) {
    auto const found = std::find_if(all.begin(), all.end(), is_named(part));
    if (found == all.end()) {
      std::vector<std::string_view> names;
      for (auto const& each : all) names.push_back(each.name());
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--algorithm: {} has no \"{}\" there; it has all, {}{}", to_string(operation), part,
                              fmt::join(names, ", "),
                              part == Candidate::kByHosts
                                  ? " (by_hosts needs several hosts of several ranks; scans and barriers never go so)"
                                  : ""));
    }
    if (std::none_of(chosen.begin(), chosen.end(), is_named(part))) chosen.push_back(*found);
  }
  if (chosen.empty()) throw Error(ErrorCode::invalid_argument, "--algorithm names none");
  return chosen;
}

/// What CLI11 takes for a number or a text and is none: "--bytes=" is a script's variable that was not set.
CLI::Validator const kNotEmpty{
    [](std::string const& text) { return text.empty() ? std::string("an empty value") : std::string(); }, ""};

void refuse_empty_values(CLI::App& app) {
  for (auto* const option : app.get_options([](CLI::Option const* each) { return each->get_items_expected_min() > 0; }))
    option->check(kNotEmpty);
}

void finish(Settings& settings, Texts const& texts) {
  settings.topology = read_topology(texts.topology);
  settings.topology_name = texts.topology;
  if (texts.ranks > 0) settings.topology.ranks = texts.ranks;
  if (texts.ranks_per_host > 0) settings.topology.ranks_per_host = texts.ranks_per_host;
  settings.topology.check();
  if (settings.topology.ranks < 2 || settings.topology.ranks > kMostRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} ranks; 2 to {} can be simulated", settings.topology.ranks, kMostRanks));
  }
  settings.operation = parse_operation(texts.operation);
  if (texts.step.empty()) {
    settings.candidates = parse_algorithms(candidates_for(settings.operation, settings.topology), settings.operation,
                                           settings.topology.ranks, texts.algorithms);
  }
  settings.sizes = settings.operation == Operation::barrier ? std::vector<std::size_t>{1} : parse_sizes(texts.sizes);
  if (texts.chunk != "best") settings.chunk = parse_bytes(texts.chunk);
  if (!texts.stragglers.empty()) settings.stragglers = parse_stragglers(texts.stragglers);
  refuse_twice(settings.stragglers, "--straggler");
  static_cast<void>(sim::Network(settings.topology, settings.stragglers));  // refuses stragglers that are not there
  if (!texts.losses.empty()) settings.losses = parse_losses(texts.losses);
  for (auto const& loss : settings.losses) {
    if (loss.rank < settings.topology.ranks) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--lose: there is no rank {}; ranks are 0 to {}", loss.rank, settings.topology.ranks - 1));
  }
  refuse_twice(settings.losses, "--lose");
  if (settings.losses.size() >= static_cast<std::size_t>(settings.topology.ranks)) {
    throw Error(ErrorCode::invalid_argument, "--lose names all ranks; one at least has to be left");
  }
  if (!settings.losses.empty() && !settings.picture.empty()) {
    throw Error(ErrorCode::invalid_argument, "--plot draws what ends well; leave out --lose");
  }
  if (!texts.detection.empty()) settings.detection_s = parse_seconds(texts.detection);
  if (!texts.step.empty()) {
    settings.step = parse_step(texts.step);
    if (settings.step->layer_bytes > kMostLayerBytes) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--step: {} bytes of gradients a layer; up to {} can be simulated",
                              settings.step->layer_bytes, kMostLayerBytes));
    }
    if (std::any_of(settings.stragglers.begin(), settings.stragglers.end(),
                    [](auto const& one) { return one.delay > sim::Time{}; })) {
      throw Error(ErrorCode::invalid_argument,
                  "--straggler: ranks of a --step begin together; say how many times as slow one is, 17:1.2");
    }
    if (!texts.forward.empty()) settings.step->forward_s = parse_seconds(texts.forward);
    settings.step->bucket_bytes = parse_bytes(texts.bucket);
    settings.step->overlap = texts.overlap;
    settings.step->by_hosts = goes_by_hosts(settings.topology) && !texts.flat;
    if (!settings.picture.empty()) throw Error(ErrorCode::invalid_argument, "--plot is for operations, not for --step");
  }
  if (!texts.jitter.empty()) settings.jitter_s = parse_seconds(texts.jitter);
}

}  // namespace

Arguments parse_arguments(int argc, char const* const* argv) {
  CLI::App app{kAbout};
  Settings settings;
  Texts texts;
  app.set_version_flag("--version", fmt::format("weft-simulate (weft) {}", WEFT_VERSION_STRING));
  app.add_option("--op", texts.operation, fmt::format("what is called: {}", fmt::join(operation_names(), ", ")))
      ->capture_default_str();
  app.add_option("--algorithm", texts.algorithms,
                 "which ones, between commas, or all (without those that take minutes)")
      ->capture_default_str();
  app.add_option("--topology", texts.topology,
                 fmt::format("{}, or a JSON file (docs/simulator.md)", fmt::join(preset_names(), ", ")))
      ->capture_default_str();
  app.add_option("--ranks", texts.ranks, "rather than the topology's")->check(CLI::Range(2, kMostRanks));
  app.add_option("--ranks-per-host", texts.ranks_per_host, "rather than the topology's")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--bytes", texts.sizes, "of the whole buffer: 1K-64M doubles, 8,1K,1M are three (2^10, …)")
      ->capture_default_str();
  app.add_option("--chunk", texts.chunk, "bytes of a pipeline's chunks; best: by the algorithm's formula")
      ->capture_default_str();
  app.add_option("--straggler", texts.stragglers, "17:2 is twice as slow, 17@5ms begins later; several between commas");
  auto* const lose = app.add_option("--lose", texts.losses,
                                    "17@5ms: rank 17 vanishes then; several between commas. Who fails, and when");
  app.add_option("--detection", texts.detection, "until all know of a lost rank; 1ms otherwise")->needs(lose);
  app.add_option("--jitter", texts.jitter, "each message is up to so much later, by chance: 5us");
  app.add_option("--reduction", settings.reduction_bytes_per_s, "bytes/s that a rank combines; 0: at once")
      ->check(tool_output::finite())
      ->check(CLI::Range(0.0, 1e15))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--seed", [&settings](std::string const& text) { settings.seed = tool_output::parse_seed(text); },
         "of chance: a whole number")
      ->default_str("1");
  auto* const step = app.add_option("--step", texts.step,
                                    "a data-parallel training step instead: 24x12M@8ms, layers, bytes of f32 gradients "
                                    "and time of backward of each");
  step->excludes("--op")->excludes("--algorithm")->excludes("--bytes")->excludes("--chunk")->excludes(lose);
  app.add_option("--forward", texts.forward, "time of a layer's forward; half of backward's otherwise")->needs(step);
  app.add_option("--bucket", texts.bucket, "bytes that are sent together at most")->needs(step)->capture_default_str();
  app.add_flag("!--no-overlap", texts.overlap, "send when all is computed")->needs(step);
  app.add_flag("--flat", texts.flat, "by all ranks alike, not inside hosts first")->needs(step);
  app.add_option("--json", settings.json, "write the figures as JSON (- for standard output)");
  app.add_option("--plot", settings.picture, "draw them as PNG (needs matplotlib); neither for --step nor for --lose")
      ->check([](std::string const& path) {
        return path.size() > 4 && path.compare(path.size() - 4, 4, ".png") == 0 ? std::string()
                                                                                : path + ": a PNG has to end in .png";
      });
  refuse_empty_values(app);
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    return {std::nullopt, app.exit(error) == 0 ? tool_output::exit_code("weft-simulate", 0) : kBadUsage};
  }
  try {
    finish(settings, texts);
  } catch (Error const& error) {
    fmt::print(stderr, "weft-simulate: {}\n", error.what());
    return {std::nullopt, kBadUsage};
  }
  return {settings, 0};
}

}  // namespace weft::simulate_tool
