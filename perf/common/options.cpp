#include "common/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "common/names.hpp"
#include "common/parse_size.hpp"
#include "common/rounds.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/error.hpp"
#include "weft/launch.hpp"
#include "weft/version.hpp"

namespace weft::perf {
namespace {

/// Values that need more than a number.
struct Texts {
  std::string min_bytes = "32M";
  std::string max_bytes = "32M";
  std::string step_bytes = "1M";
  std::string dtype = "float";
  std::string op = "sum";
  std::string root = "0";
  std::string memory;
  std::string compare;
  std::string device = "cpu";
  std::string link;
  int across = static_cast<int>(Across::max);
  int registered = -1;
  int timeout_seconds = 0;
};

/// Options of nccl-tests that have no effect here.
struct Inapplicable {
  char const* names;
  char const* value;
  int most;  ///< from 0 on
  char const* on_cpu;
  char const* on_gpu;  ///< null: has its effect there
};
constexpr char const* kParallelInit = "ranks are processes and always initialise at the same time";
constexpr int kAnyNumber = std::numeric_limits<int>::max();
constexpr char const* kCtas = "NCCL chooses how many CTAs a call gets";
constexpr std::array kInapplicable{
    Inapplicable{"-p,--parallel_init", "0/1", 1, kParallelInit, kParallelInit},
    Inapplicable{"-y,--stream_null", "0/1", 1, "there is no null stream on a CPU", nullptr},
    Inapplicable{"-G,--cudagraph", "launches", kAnyNumber, "there are no CUDA graphs on a CPU",
                 "calls are launched one by one; graphs are not timed"},
    Inapplicable{"-x,--cta_policy", "0/1/2", 2, "there are no CTAs on a CPU", kCtas},
    Inapplicable{"-D,--device_implementation", "number", kAnyNumber, "there is no device-side implementation on a CPU",
                 "calls are NCCL's from the host"},
    Inapplicable{"-V,--device_cta_count", "number", kAnyNumber, "there are no CTAs on a CPU", kCtas},
};

[[noreturn]] void refuse(std::string const& message) {
  throw CLI::ValidationError(message);
}

std::size_t bytes_of(std::string const& option, std::string const& text) {
  auto const bytes = parse_size(text);
  if (!bytes) refuse(fmt::format("{}: '{}' is no size (a number, K, M or G may follow)", option, text));
  return *bytes;
}

/// The names of `values`, each with a blank behind it.
template <typename Value>
std::string names_of(std::vector<Value> const& values) {
  std::string names;
  for (auto const value : values) names += nccl_name(value) + " ";
  return names;
}

/// Values that are accepted, but that `all` does not include.
template <typename Value>
std::vector<Value> beyond(std::vector<Value> const& known, std::vector<Value> const& all) {
  std::vector<Value> others;
  for (auto const value : known) {
    if (std::find(all.begin(), all.end(), value) == all.end()) others.push_back(value);
  }
  return others;
}

/// "data type, or all: nccl-tests' (int8 …); further: int16 …"
template <typename Value>
std::string describe_choice(char const* what, std::vector<Value> const& known, std::vector<Value> const& all) {
  auto const trimmed = [](std::string names) { return names.erase(names.size() - 1); };
  return fmt::format("{}, or all: those of nccl-tests ({}); Weft's others, one at a time: {}", what,
                     trimmed(names_of(all)), trimmed(names_of(beyond(known, all))));
}

std::vector<DataType> dtypes_of(std::string const& text) {
  if (text == "all") return all_types();
  if (auto const dtype = parse_data_type(text)) return {*dtype};
  refuse(fmt::format("-d: '{}' is no data type ({}all)", text, names_of(known_types())));
}

std::vector<ReduceOp> ops_of(std::string const& text) {
  if (text == "all") return all_ops();
  for (auto const op : known_ops()) {
    if (text == nccl_name(op)) return {op};
  }
  refuse(fmt::format("-o: '{}' is no reduction ({}all)", text, names_of(known_ops())));
}

/// The number of ranks is not known yet; Sweep refuses a root that does not exist.
std::vector<int> roots_of(std::string const& text) {
  if (text == "all" || text == "-1") return {};
  int root = 0;
  auto const* const end = text.data() + text.size();
  auto const [stopped, error] = std::from_chars(text.data(), end, root);
  if (error != std::errc{} || stopped != end || root < 0) {
    refuse(fmt::format("-r: '{}' is no rank (a number, or all)", text));
  }
  return {root};
}

/// nccl-tests' own variable. Unlike nccl-tests, this refuses a value that is no bandwidth, instead of taking it as 0.
std::optional<double> min_bandwidth() {
  char const* const value = std::getenv("NCCL_TESTS_MIN_BW");
  if (value == nullptr) return std::nullopt;
  std::string_view const text(value);
  double gbps = 0;
  auto const* const end = text.data() + text.size();
  auto const [stopped, error] = std::from_chars(text.data(), end, gbps);
  if (error != std::errc{} || stopped != end || !std::isfinite(gbps) || gbps <= 0) {
    refuse(fmt::format("NCCL_TESTS_MIN_BW={}: expected a positive number (GB/s)", text));
  }
  return gbps;
}

template <typename T>
void add_number(CLI::App& app, char const* names, T& value, int low, int high, char const* text) {
  app.add_option(names, value, text)->check(CLI::Range(low, high))->capture_default_str();
}

/// A switch that accepts 0 or 1 only, not the other words that CLI11 accepts for a bool.
CLI::Option* add_switch(CLI::App& app, char const* names, bool& value, char const* text) {
  return app.add_option(names, value, text)->check(CLI::IsMember({"0", "1"}));
}

void add_sizes(CLI::App& app, Options& options, Texts& texts) {
  add_number(app, "-t,--nthreads,--ranks", options.threads, 1, kMostLocalRanks,
             "local ranks to start, each a process; under mpirun or torchrun, which start them, 1 or as many");
  add_number(app, "-g,--ngpus", options.gpus, 1, kMostLocalRanks,
             "ranks per thread: each is a process, so it multiplies -t");
  app.add_option("-b,--minbytes", texts.min_bytes, "smallest message, bytes (K M G)")->capture_default_str();
  app.add_option("-e,--maxbytes", texts.max_bytes, "largest message, bytes (K M G)")->capture_default_str();
  app.add_option("-i,--stepbytes", texts.step_bytes, "distance between messages, bytes (K M G)")->capture_default_str();
  app.add_option("-f,--stepfactor", options.step_factor, "factor between messages; 1: use -i")
      ->check(CLI::Range(0, kAnyNumber))
      ->capture_default_str();
  add_number(app, "-u,--unalign", options.unalign, 0, 1 << 20, "index of the first element used in every buffer");
}

void add_measurement(CLI::App& app, Options& options, Texts& texts) {
  add_number(app, "-n,--iters", options.loop.iterations, 1, 100000,
             "iterations from 128 KB to 1 MB; smaller messages get more, larger ones fewer");
  add_number(app, "-w,--warmup_iters", options.warmup, 0, 100000, "calls before timing, per size");
  add_number(app, "-m,--agg_iters", options.aggregate, 1, 1000, "calls per timed iteration");
  add_number(app, "-N,--run_cycles", options.cycles, 0, 1 << 30, "times to measure the whole table; 0: until stopped");
  add_number(app, "-c,--check", options.checks, 0, 100000, "calls per line whose results are checked; 0: none");
  app.add_option("-d,--datatype", texts.dtype, describe_choice("data type", known_types(), all_types()))
      ->capture_default_str();
  // nccl-tests accepts these for every operation, whether it uses them or not.
  app.add_option("-o,--op", texts.op, describe_choice("reduction", known_ops(), all_ops()))->capture_default_str();
  app.add_option("-r,--root", texts.root, "root of rooted operations, or all")->capture_default_str();
  add_number(app, "-z,--blocking", options.blocking, 0, 2, "calls block in any case; 1: a barrier after each of them");
  add_number(app, "-T,--timeout", texts.timeout_seconds, 0, 1 << 20, "seconds a call waits for a peer; 0: default");
  add_number(app, "-a,--average", texts.across, 0, 3, "whose time counts: 0 rank 0, 1 average, 2 fastest, 3 slowest");
  add_switch(app, "-C,--report_cputime", options.cpu_time,
             "0/1: call the time CPU time (it is: a call runs on the caller's CPU)");
  add_switch(app, "-S,--report_timestamps", options.timestamps, "0/1: when each line was measured");
  add_switch(app, "-M,--memory_report", options.memory_report, "0/1: memory used, at the end");
  app.add_option("-J,--output_file", options.output_file, "also write everything to this file, as JSON");
  add_number(app, "-R,--local_register", texts.registered, 0, 2,
             "0 or 1: private memory (there is nothing to register it with); 2: symmetric");
  app.get_option("-R")->default_str("");
}

void add_inapplicable(CLI::App& app, std::array<int, kInapplicable.size()>& values) {
  for (std::size_t i = 0; i < kInapplicable.size(); ++i) {
    auto const& known = kInapplicable[i];
    auto const text = known.on_gpu == nullptr ? fmt::format("with --device cuda; else {}", known.on_cpu)
                                              : fmt::format("accepted, no effect: {}", known.on_cpu);
    app.add_option(known.names, values[i], text)->check(CLI::Range(0, known.most))->type_name(known.value);
  }
}

void add_own_options(CLI::App& app, Options& options, Texts& texts) {
  auto constexpr kGroup = "Beyond nccl-tests";
  app.add_option("--device", texts.device, "where buffers are: cpu, or cuda: a GPU for each rank, times by its events")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str()
      ->group(kGroup);
  app.add_flag("--share-gpus", options.share_gpus, "ranks may outnumber GPUs: to see that results are right, not times")
      ->group(kGroup);
  add_switch(app, "--touch", options.loop.touch, "0/1: write all input before and read all output after every call")
      ->capture_default_str()
      ->group(kGroup);
  app.add_flag("--cost", options.cost, "column: what a call costs the loop around it; of a GPU, the host")
      ->group(kGroup);
  app.add_flag("--limit", options.limit, "columns: the machine's limit, and time over it")->group(kGroup);
  app.add_option("--compare", texts.compare,
                 "columns: another library in the same rounds; mpi (needs mpirun), or with --device cuda nccl")
      ->check(CLI::IsMember({"mpi", "nccl"}))
      ->group(kGroup);
  app.add_flag("--overlap", options.overlap, "column: share of the time that computation hides, on a stream")
      ->group(kGroup);
  app.add_option("--memory", texts.memory, "symmetric (Communicator::allocate, the default) or private")
      ->check(CLI::IsMember({"symmetric", "private"}))
      ->group(kGroup);
  add_switch(app, "--in-place", options.in_place, "0/1: measure the in-place form too")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--rounds", options.rounds, "undisturbed rounds to keep; the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--link", texts.link, "emulate a link, latency:bandwidth, such as 20us:2GB/s")->group(kGroup);
  app.add_option("--json", options.json, "append one JSON line per size to this file")->group(kGroup);
  app.add_option("--label", options.label, "text for the JSON lines and document")->group(kGroup);
}

MemoryKind memory_of(Texts const& texts) {
  auto const registered = texts.registered;
  if (!texts.memory.empty() && registered >= 0 && (texts.memory == "symmetric") != (registered == 2)) {
    refuse(fmt::format("-R: {} contradicts --memory {}", registered, texts.memory));
  }
  bool const symmetric = texts.memory.empty() ? registered < 0 || registered == 2 : texts.memory == "symmetric";
  return symmetric ? MemoryKind::symmetric : MemoryKind::private_memory;
}

void check_sizes(Options const& options) {
  if (options.min_bytes > options.max_bytes) {
    refuse(fmt::format("-b: {} bytes are more than -e's {}", options.min_bytes, options.max_bytes));
  }
  if (options.step_factor == 0) refuse("-f: 0 is no factor; 1 means steps of -i bytes");
  if (options.step_factor == 1 && options.step_bytes == 0) refuse("-i: steps of 0 bytes never reach -e");
  if (options.step_factor > 1 && options.min_bytes == 0)
    refuse("-b: 0 times any factor stays 0; give -i instead of -f");
}

void check_combination(Case const& what, Options const& options) {
  if (!what.reduces() || options.dtypes.size() > 1 || options.ops.size() > 1) return;  // "all" leaves the others out
  if (supports(options.dtypes.front(), options.ops.front())) return;
  refuse(fmt::format("-o: {} elements have no {}", nccl_name(options.dtypes.front()), nccl_name(options.ops.front())));
}

void check_ranks(Case const& what, Options const& options) {
  int const ranks = options.ranks();
  if (ranks > kMostLocalRanks) refuse(fmt::format("-t, -g: {} ranks; at most {}", ranks, kMostLocalRanks));
  if (ranks > 1 && !options.roots.empty() && options.roots.front() >= ranks) {
    refuse(fmt::format("-r: there is no rank {} among {}", options.roots.front(), ranks));
  }
  if (!what.supports(ranks)) refuse(fmt::format("{} needs a power of 2 ranks, not {}", what.name(), ranks));
}

/// Handles options for host memory, which have no effect on a GPU, and the reverse.
void check_device(CLI::App const& app, Options const& options) {
  if (options.device == DeviceType::cpu) {
    if (options.compare_nccl) refuse("--compare nccl: NCCL moves memory of GPUs; add --device cuda");
    if (options.share_gpus) refuse("--share-gpus: there are none without --device cuda");
    return;
  }
#if !WEFT_WITH_NCCL
  refuse(
      "--device cuda: this Weft was built without CUDA and NCCL; build it with -DWEFT_WITH_CUDA=ON where nvcc and "
      "NCCL's nccl.h are, or leave --device out");
#endif
  for (auto const* name : {"--touch", "--limit", "--overlap", "--link"}) {
    if (app.get_option(name)->count() > 0) refuse(fmt::format("{}: is about host memory; leave it out here", name));
  }
  if (options.compare_mpi) refuse("--compare mpi: measures host memory; with --device cuda there is nccl");
}

void add_notes(Options& options, Texts const& texts) {
  if (options.device == DeviceType::cuda) {
    if (texts.registered == 1) options.notes.emplace_back("-R 1: memory is private; ncclCommRegister is not called");
    if (options.share_gpus) options.notes.emplace_back("--share-gpus: ranks share GPUs; times say nothing");
    return;
  }
  if (options.gpus > 1) options.notes.emplace_back("-g: there are no GPUs here; its ranks are processes like -t's");
  if (options.blocking == 2) options.notes.emplace_back("-z 2: calls block in any case");
  if (texts.registered == 1) options.notes.emplace_back("-R 1: there is nothing to register private memory with");
}

void finish(CLI::App const& app, Case const& what, Options& options, Texts const& texts) {
  options.device = texts.device == "cuda" ? DeviceType::cuda : DeviceType::cpu;
  options.min_bytes = bytes_of("-b", texts.min_bytes);
  options.max_bytes = bytes_of("-e", texts.max_bytes);
  options.step_bytes = bytes_of("-i", texts.step_bytes);
  options.dtypes = dtypes_of(texts.dtype);
  options.ops = ops_of(texts.op);
  options.roots = roots_of(texts.root);
  options.memory = memory_of(texts);
  options.compare_mpi = texts.compare == "mpi";
  options.compare_nccl = texts.compare == "nccl";
  options.loop.across = static_cast<Across>(texts.across);
  options.loop.cost = options.cost || !options.json.empty();
  if (texts.timeout_seconds > 0) options.timeout = std::chrono::seconds(texts.timeout_seconds);
  if (!texts.link.empty()) options.link = EmulatedLink::parse(texts.link);
  options.min_bus_gbps = min_bandwidth();
  static_cast<void>(wanted_canary());  // throws for a bad variable now, before anything is measured
  check_sizes(options);
  check_combination(what, options);
  check_ranks(what, options);
  check_device(app, options);
  add_notes(options, texts);
}

void note_inapplicable(CLI::App const& app, Options& options) {
  for (auto const& known : kInapplicable) {
    auto const name = std::string(known.names).substr(0, 2);
    auto const* const reason = options.device == DeviceType::cpu ? known.on_cpu : known.on_gpu;
    if (app.get_option(name)->count() == 0) continue;
    if (reason != nullptr) options.notes.push_back(fmt::format("{}: {}", name, reason));
    if (reason == nullptr) options.null_stream = app.get_option(name)->as<int>() != 0;  // -y
  }
}

}  // namespace

std::string to_string(MemoryKind kind) {
  return kind == MemoryKind::symmetric ? "symmetric" : "private";
}

std::vector<std::size_t> Options::sizes() const {
  std::vector<std::size_t> result;
  auto size = min_bytes;
  while (size <= max_bytes) {
    result.push_back(size);
    if (step_factor > 1 ? size > max_bytes / step_factor : size > max_bytes - step_bytes) break;
    size = step_factor > 1 ? size * step_factor : size + step_bytes;
  }
  return result;
}

ParsedOptions parse_options(Case const& what, int argc, char const* const* argv) {
  ParsedOptions parsed;
  auto& options = parsed.options;
  options.arguments.assign(argv, argv + argc);
  Texts texts;
  std::array<int, kInapplicable.size()> ignored{};
  auto const program = what.name() + "_perf";
  CLI::App app(fmt::format("Time of {} over message sizes, in nccl-tests' table.", what.name()), program);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as getopt, which scripts rely on
  app.set_version_flag("--version", fmt::format("{} (weft) {}", program, WEFT_VERSION_STRING));
  add_sizes(app, options, texts);
  add_measurement(app, options, texts);
  add_inapplicable(app, ignored);
  add_own_options(app, options, texts);
  try {
    app.parse(argc, argv);
    finish(app, what, options, texts);
    note_inapplicable(app, options);
  } catch (CLI::Success const& done) {
    parsed.exit_code = tool_output::exit_code(program.c_str(), app.exit(done));
  } catch (CLI::ExtrasError const&) {  // its own text names the last argument first
    report_failure(fmt::format("{}: not known: {}\n{}", program, fmt::join(app.remaining(), " "), app.help()));
    parsed.exit_code = 2;
  } catch (CLI::Error const& error) {
    report_failure(fmt::format("{}: {}", program, error.what()));
    parsed.exit_code = 2;
  } catch (Error const& error) {
    report_failure(fmt::format("{}: {}", program, error.what()));
    parsed.exit_code = 2;
  }
  return parsed;
}

}  // namespace weft::perf
