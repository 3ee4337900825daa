#include "common/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "weft/error.hpp"
#include "weft/version.hpp"

namespace weft::perf {
namespace {

constexpr int kMaxRanks = 16;
constexpr DataType kDataTypes[] = {DataType::i8,  DataType::u8,  DataType::i32,  DataType::u32, DataType::i64,
                                   DataType::u64, DataType::f16, DataType::bf16, DataType::f32, DataType::f64};
constexpr ReduceOp kReduceOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};

struct Texts {
  std::string min_bytes = "32M";
  std::string max_bytes = "32M";
  std::string step_bytes = "1M";
  std::string dtype = "float";
  std::string op = "sum";
  std::string memory = "symmetric";
  std::string vs;
  std::string link;
  int check = 1;
  int in_place = 1;
};

[[noreturn]] void refuse(std::string const& message) {
  throw CLI::ValidationError(message);
}

std::size_t bytes_of(std::string const& option, std::string const& text) {
  auto const bytes = parse_bytes(text);
  if (!bytes) refuse(fmt::format("{}: '{}' is no size (a number, K, M or G may follow)", option, text));
  return *bytes;
}

std::vector<DataType> dtypes_of(std::string const& text) {
  if (text == "all") return {std::begin(kDataTypes), std::end(kDataTypes)};
  auto const dtype = parse_data_type(text);
  if (!dtype)
    refuse(fmt::format("-d: '{}' is no data type (int8 uint8 int32 uint32 int64 uint64 half bfloat16 float double all)",
                       text));
  return {*dtype};
}

std::vector<ReduceOp> ops_of(std::string const& text) {
  if (text == "all") return {std::begin(kReduceOps), std::end(kReduceOps)};
  auto const op = parse_reduce_op(text);
  if (!op) refuse(fmt::format("-o: '{}' is no reduction (sum prod max min avg all)", text));
  return {*op};
}

void add_nccl_options(CLI::App& app, Options& options, Texts& texts) {
  app.add_option("-b,--minbytes", texts.min_bytes, "smallest message, bytes (K M G)")->capture_default_str();
  app.add_option("-e,--maxbytes", texts.max_bytes, "largest message, bytes (K M G)")->capture_default_str();
  app.add_option("-i,--stepbytes", texts.step_bytes, "distance between messages, bytes (K M G)")->capture_default_str();
  app.add_option("-f,--stepfactor", options.step_factor, "factor between messages; 1: use -i")->capture_default_str();
  app.add_option("-n,--iters", options.iterations,
                 "iterations at 512 KB and more; smaller messages get more, larger ones fewer")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", options.warmup, "calls before timing, per size")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("-m,--agg_iters", options.aggregate, "calls per timed iteration")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("-d,--datatype", texts.dtype, "data type, or all")->capture_default_str();
  app.add_option("-c,--check", texts.check, "check results: 0 or 1")->check(CLI::Range(0, 1))->capture_default_str();
  // nccl-tests takes these everywhere, whether the collective has a use for them or not.
  app.add_option("-o,--op", texts.op, "reduction, or all")->capture_default_str();
  app.add_option("-r,--root", options.root, "rank whose data everybody gets")
      ->check(CLI::Range(0, kMaxRanks - 1))
      ->capture_default_str();
}

void add_own_options(CLI::App& app, Options& options, Texts& texts) {
  app.add_option("--ranks", options.ranks, "local ranks to start; under mpirun its ranks are used")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("--memory", texts.memory, "symmetric (Communicator::allocate) or private")
      ->check(CLI::IsMember({"symmetric", "private"}))
      ->capture_default_str();
  app.add_option("--vs", texts.vs, "measure another library beside, in the same rounds: mpi (needs mpirun)")
      ->check(CLI::IsMember({"mpi"}));
  app.add_flag("--cost", options.cost, "also print call, cost and the machine's limit");
  app.add_option("--rounds", options.rounds, "undisturbed rounds to keep; the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--in-place", texts.in_place, "measure the in-place form too: 0 or 1")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("--link", texts.link, "emulate a link, latency:bandwidth, such as 20us:2GB/s");
  app.add_option("--json", options.json, "append one JSON line per size to this file");
  app.add_option("--label", options.label, "text for the JSON lines");
}

void finish(Options& options, Texts const& texts) {
  options.min_bytes = bytes_of("-b", texts.min_bytes);
  options.max_bytes = bytes_of("-e", texts.max_bytes);
  options.step_bytes = bytes_of("-i", texts.step_bytes);
  options.dtypes = dtypes_of(texts.dtype);
  options.ops = ops_of(texts.op);
  options.memory = texts.memory == "private" ? MemoryKind::private_memory : MemoryKind::symmetric;
  options.check = texts.check != 0;
  options.in_place = texts.in_place != 0;
  options.vs_mpi = !texts.vs.empty();
  if (!texts.link.empty()) options.link = EmulatedLink::parse(texts.link);
  if (options.min_bytes > options.max_bytes) {
    refuse(fmt::format("-b: {} bytes are more than -e's {}", options.min_bytes, options.max_bytes));
  }
  if (options.ranks > 1 && options.root >= options.ranks) {
    refuse(fmt::format("-r: there is no rank {} among {}", options.root, options.ranks));
  }
  if (options.step_factor == 0) refuse("-f: 0 is no factor; 1 means steps of -i bytes");
  if (options.step_factor == 1 && options.step_bytes == 0) refuse("-i: steps of 0 bytes never reach -e");
  if (options.step_factor > 1 && options.min_bytes == 0)
    refuse("-b: 0 times any factor stays 0; give -i instead of -f");
}

}  // namespace

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
  Texts texts;
  auto const program = what.name() + "_perf";
  CLI::App app(fmt::format("Time of {} over message sizes, in nccl-tests' table.", what.name()), program);
  app.set_version_flag("--version", fmt::format("{} (weft) {}", program, WEFT_VERSION_STRING));
  add_nccl_options(app, parsed.options, texts);
  add_own_options(app, parsed.options, texts);
  try {
    app.parse(argc, argv);
    finish(parsed.options, texts);
  } catch (CLI::Success const& done) {
    parsed.exit_code = app.exit(done);
  } catch (CLI::Error const& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    parsed.exit_code = 2;
  } catch (Error const& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    parsed.exit_code = 2;
  }
  return parsed;
}

std::string nccl_name(DataType dtype) {
  switch (dtype) {
    case DataType::i8: return "int8";
    case DataType::u8: return "uint8";
    case DataType::i32: return "int32";
    case DataType::u32: return "uint32";
    case DataType::i64: return "int64";
    case DataType::u64: return "uint64";
    case DataType::f16: return "half";
    case DataType::bf16: return "bfloat16";
    case DataType::f32: return "float";
    case DataType::f64: return "double";
  }
  return "?";
}

}  // namespace weft::perf
