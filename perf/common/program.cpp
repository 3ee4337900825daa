#include "common/program.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/limit.hpp"
#include "common/mpi_peer.hpp"
#include "common/report.hpp"
#include "common/rounds.hpp"
#include "weft/error.hpp"
#include "weft/launch.hpp"

namespace weft::perf {
namespace {

/// A library's send and receive memory, large enough for every size.
struct Memory {
  Buffer send;
  Buffer recv;
};

/// One rank's run over the sizes, data types and reductions asked for.
class Sweep {
 public:
  Sweep(Case const& what, Options const& options, MpiPeer const* peer, Communicator& communicator)
      : case_(what), options_(options), peer_(peer), communicator_(communicator), board_(communicator) {}

  int run() {
    if (options_.root >= board_.ranks()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("-r: there is no rank {} among {}", options_.root, board_.ranks()));
    }
    print_head();
    for (auto const dtype : options_.dtypes) {
      allocate(dtype);
      for (auto const op : case_.reduces() ? options_.ops : std::vector<ReduceOp>{ReduceOp::sum}) run_one(dtype, op);
    }
    print(fmt::format("# Out of bounds values : {:g} {}\n", wrong_, wrong_ == 0 ? "OK" : "FAILED"));
    print(fmt::format("# Avg bus bandwidth    : {:g} \n#\n", bus_lines_ == 0 ? 0.0 : bus_sum_ / bus_lines_));
    return wrong_ == 0 ? 0 : 1;
  }

 private:
  /// What is measured at one size.
  struct Entry {
    Counts counts;
    std::optional<std::size_t> out_of_place;  // index of the side
    std::optional<std::size_t> in_place;
    std::optional<std::size_t> peer;
  };

  void print(std::string const& text) const {
    if (board_.rank() != 0) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  void print_head();
  void allocate(DataType dtype);
  [[nodiscard]] Memory allocate_memory(std::size_t elements, DataType dtype, bool symmetric);
  [[nodiscard]] Side weft_side(Counts counts, ReduceOp op, bool in_place);
  [[nodiscard]] SizeRounds sides_of(std::size_t bytes, DataType dtype, ReduceOp op, Entry& entry);
  [[nodiscard]] double count_wrong(Side const& side, Counts counts, ReduceOp op);
  [[nodiscard]] std::optional<Timing> timing_of(SizeRounds const& rounds, std::optional<std::size_t> side,
                                                Entry const& entry, Canary best, ReduceOp op);
  void run_one(DataType dtype, ReduceOp op);
  void print_line(SizeRounds const& rounds, Entry const& entry, DataType dtype, ReduceOp op, Canary best);
  [[nodiscard]] std::vector<Detail> details_of(std::vector<SizeRounds> const& rounds, std::vector<Entry> const& entries,
                                               Canary best);
  void write_json(std::vector<Detail> const& details, DataType dtype, ReduceOp op, Canary best) const;

  Case const& case_;
  Options const& options_;
  MpiPeer const* peer_;
  Communicator& communicator_;
  Board board_;
  Memory own_;
  Memory peers_;
  double wrong_ = 0;
  double bus_sum_ = 0;
  int bus_lines_ = 0;
};

void Sweep::print_head() {
  auto mine = Buffer::host(2, DataType::i64);
  auto all = Buffer::host(2 * static_cast<std::size_t>(board_.ranks()), DataType::i64);
  mine.as<std::int64_t>()[0] = getpid();
  mine.as<std::int64_t>()[1] = sched_getcpu();
  communicator_.all_gather(mine.view(), all.view()).wait();

  auto const step = options_.step_factor > 1 ? fmt::format("{}(factor)", options_.step_factor)
                                             : fmt::format("{}(bytes)", options_.step_bytes);
  std::string text = fmt::format(
      "# nRanks {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg iters: {} validation: {} memory: {} "
      "rounds: {}\n#\n",
      board_.ranks(), options_.min_bytes, options_.max_bytes, step, options_.warmup, options_.iterations,
      options_.aggregate, options_.check ? 1 : 0, options_.memory == MemoryKind::symmetric ? "symmetric" : "private",
      options_.rounds);
  if (options_.link) text += fmt::format("# Link: {}\n#\n", options_.link->describe());
  text += "# Using ranks\n";
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    auto const values = all.as<std::int64_t>().subspan(2 * static_cast<std::size_t>(rank), 2);
    text += fmt::format("#  Rank {:2} Pid {:6} on {:>10} cpu {:2}\n", rank, values[0], host, values[1]);
  }
  print(text + "#\n");
}

Memory Sweep::allocate_memory(std::size_t elements, DataType dtype, bool symmetric) {
  if (!symmetric) return {Buffer::host(elements, dtype), Buffer::host(elements, dtype)};
  return {communicator_.allocate(elements, dtype), communicator_.allocate(elements, dtype)};
}

void Sweep::allocate(DataType dtype) {
  own_ = {};
  peers_ = {};
  auto const elements = std::max<std::size_t>(1, options_.max_bytes / size_of(dtype));
  own_ = allocate_memory(elements, dtype, options_.memory == MemoryKind::symmetric);
  if (peer_ != nullptr) peers_ = allocate_memory(elements, dtype, false);
}

Side Sweep::weft_side(Counts counts, ReduceOp op, bool in_place) {
  auto const on = case_.operands(own_.send.view(), own_.recv.view(), counts, board_.rank(), in_place);
  auto call = [this, on, op, calls = options_.aggregate] {
    for (int i = 0; i < calls; ++i) case_.run(communicator_, on, op, options_.root);
  };
  return {"weft", on, call, options_.aggregate};
}

SizeRounds Sweep::sides_of(std::size_t bytes, DataType dtype, ReduceOp op, Entry& entry) {
  entry.counts = case_.counts(bytes / size_of(dtype), board_.ranks());
  std::vector<Side> sides;
  if (case_.out_of_place()) {
    entry.out_of_place = sides.size();
    sides.push_back(weft_side(entry.counts, op, false));
  }
  if (peer_ != nullptr) {
    entry.peer = sides.size();
    auto const on = case_.operands(peers_.send.view(), peers_.recv.view(), entry.counts, board_.rank(), false);
    auto call = [one = peer_->call(case_, on, op, options_.root), calls = options_.aggregate] {
      for (int i = 0; i < calls; ++i) one();
    };
    sides.push_back({"mpi", on, call, options_.aggregate});
  }
  if (options_.in_place || !case_.out_of_place()) {
    entry.in_place = sides.size();
    sides.push_back(weft_side(entry.counts, op, true));
  }
  return {std::max(entry.counts.send, entry.counts.recv) * size_of(dtype), std::move(sides)};
}

double Sweep::count_wrong(Side const& side, Counts counts, ReduceOp op) {
  auto const dtype = side.on.send.dtype;
  Reference const reference(dtype, op, board_.ranks());
  reference.fill(side.on.send, board_.rank());
  board_.barrier();
  case_.run(communicator_, side.on, op, options_.root);
  double wrong = 0;
  auto const* const found = static_cast<std::byte const*>(side.on.recv.data);
  for (std::size_t i = 0; i < side.on.recv.count; ++i) {
    double const expected = case_.expected(reference, board_.rank(), i, counts, options_.root);
    if (!reference.agrees(expected, decode(dtype, found + i * size_of(dtype)))) ++wrong;
  }
  return board_.sum(wrong);
}

std::optional<Timing> Sweep::timing_of(SizeRounds const& rounds, std::optional<std::size_t> side, Entry const& entry,
                                       Canary best, ReduceOp op) {
  if (!side) return std::nullopt;
  Timing timing;
  timing.seconds = rounds.figures(*side, best).call;
  if (timing.seconds > 0) timing.algorithm_gbps = static_cast<double>(rounds.bytes()) / timing.seconds / 1e9;
  timing.bus_gbps = timing.algorithm_gbps * case_.bus_factor(board_.ranks());
  bus_sum_ += timing.bus_gbps;
  ++bus_lines_;
  if (options_.check) {
    timing.wrong = count_wrong(rounds.sides()[*side], entry.counts, op);
    wrong_ += *timing.wrong;
  }
  return timing;
}

void Sweep::print_line(SizeRounds const& rounds, Entry const& entry, DataType dtype, ReduceOp op, Canary best) {
  Line line;
  line.bytes = rounds.bytes();
  line.count = entry.counts.parameter;
  line.dtype = dtype;
  line.op = case_.reduces() ? std::string(to_string(op)) : "none";
  line.root = case_.rooted() ? options_.root : -1;
  line.out_of_place = timing_of(rounds, entry.out_of_place, entry, best, op);
  line.in_place = timing_of(rounds, entry.in_place, entry, best, op);
  print(table_line(line));
}

std::vector<Detail> Sweep::details_of(std::vector<SizeRounds> const& rounds, std::vector<Entry> const& entries,
                                      Canary best) {
  PhysicalLimit limit(communicator_, board_, case_, options_.max_bytes, options_.root);
  double const exchange = flag_exchange(board_);
  std::vector<Detail> details;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    auto const& size = rounds[i];
    auto const figures = size.figures(entries[i].out_of_place.value_or(entries[i].in_place.value_or(0)), best);
    Detail detail{size.bytes(), figures.call, figures.cost, 0, {}, {}, size.kept(best), size.measured()};
    detail.limit = std::max(exchange, limit.traffic(size.bytes(), size.bytes() > (8U << 20) ? 3 : 20));
    if (entries[i].peer) {
      auto const peer = size.figures(*entries[i].peer, best);
      detail.peer_call = peer.call;
      detail.peer_cost = peer.cost;
    }
    details.push_back(detail);
  }
  return details;
}

void Sweep::write_json(std::vector<Detail> const& details, DataType dtype, ReduceOp op, Canary best) const {
  if (options_.json.empty() || board_.rank() != 0) return;
  std::ofstream file(options_.json, std::ios::app);
  for (auto const& detail : details) {
    nlohmann::json line{{"program", case_.name() + "_perf"},
                        {"label", options_.label},
                        {"ranks", board_.ranks()},
                        {"memory", options_.memory == MemoryKind::symmetric ? "symmetric" : "private"},
                        {"type", nccl_name(dtype)},
                        {"redop", case_.reduces() ? std::string(to_string(op)) : "none"},
                        {"link", options_.link ? options_.link->describe() : ""},
                        {"bytes", detail.bytes},
                        {"call_us", detail.call * 1e6},
                        {"cost_us", detail.cost * 1e6},
                        {"limit_us", detail.limit * 1e6},
                        {"rounds_kept", detail.rounds_kept},
                        {"rounds", detail.rounds},
                        {"canary_copy_us", best.copy * 1e6},
                        {"canary_barrier_us", best.barrier * 1e6},
                        {"wrong", wrong_}};
    if (detail.peer_call) line["peer_call_us"] = *detail.peer_call * 1e6;
    if (detail.peer_cost) line["peer_cost_us"] = *detail.peer_cost * 1e6;
    file << line.dump() << '\n';
  }
  file.close();
  if (!file) throw Error(ErrorCode::system, fmt::format("--json: cannot write {}", options_.json));
}

void Sweep::run_one(DataType dtype, ReduceOp op) {
  print(table_header());
  Stopwatch watch(board_, dtype, options_.iterations);
  std::vector<SizeRounds> rounds;
  std::vector<Entry> entries;
  for (auto const bytes : options_.sizes()) {
    rounds.push_back(sides_of(bytes, dtype, op, entries.emplace_back()));
    rounds.back().warm_up(watch, options_.warmup);
  }
  auto const best = run_rounds(rounds, watch, options_.rounds);
  for (std::size_t i = 0; i < rounds.size(); ++i) print_line(rounds[i], entries[i], dtype, op, best);
  if (!options_.cost && peer_ == nullptr && options_.json.empty()) return;
  auto details = details_of(rounds, entries, best);
  print(detail_table(details, peer_ == nullptr ? "" : "mpi"));
  write_json(details, dtype, op, best);
}

}  // namespace

int run_program(Case const& what, int argc, char const* const* argv) {
  auto const parsed = parse_options(what, argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  auto const& options = parsed.options;
  try {
    std::unique_ptr<MpiPeer> peer;
    if (options.vs_mpi) peer = std::make_unique<MpiPeer>();
    LaunchOptions launch_options;
    launch_options.ranks = options.ranks;
    launch_options.communicator.config = Config::from_environment();
    launch_options.communicator.emulated_link = options.link;
    return launch(launch_options,
                  [&](Communicator& communicator) { return Sweep(what, options, peer.get(), communicator).run(); });
  } catch (Error const& error) {
    fmt::print(stderr, "{}_perf: {}\n", what.name(), error.what());
    return error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported ? 2 : 1;
  }
}

}  // namespace weft::perf
