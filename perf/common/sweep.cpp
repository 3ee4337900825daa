#include "common/sweep.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "common/names.hpp"
#include "common/verify.hpp"
#include "common/weft_calls.hpp"
#include "weft/error.hpp"

namespace weft::perf {
namespace {

double peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace

Sweep::Sweep(Case const& what, Options const& options, MpiPeer const* peer, Communicator& communicator)
    : case_(what), options_(options), peer_(peer), communicator_(communicator), board_(meeting_of(communicator)) {
  if (!options.roots.empty() && options.roots.front() >= board_.ranks()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("-r: there is no rank {} among {}", options.roots.front(), board_.ranks()));
  }
  if (!what.supports(board_.ranks())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}_perf needs a power of 2 ranks, not {}", what.name(), board_.ranks()));
  }
  auto const largest = std::max<std::size_t>(64, options.max_bytes);
  if (options.limit) limit_.emplace(meeting_of(communicator), board_, what, largest);
  if (options.overlap) overlap_.emplace(board_);
}

void Sweep::print(std::string const& text) const {
  if (board_.rank() != 0) return;
  fmt::print("{}", text);
  std::fflush(stdout);
}

bool Sweep::can_write(char const* option, std::string const& path) {
  if (path.empty()) return true;
  bool const refused = board_.rank() == 0 && !can_append(path);
  if (board_.max(refused ? 1 : 0) == 0) return true;
  if (!refused) return false;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: cannot write {}", option, path));
}

int Sweep::run() {
  if (!can_write("-J", options_.output_file) || !can_write("--json", options_.json)) return 0;
  auto const places = rank_places(communicator_);
  print(head_text(case_, options_, places));
  if (!options_.output_file.empty()) document_.emplace(case_, options_, places);
  print(table_header({options_.cpu_time, options_.timestamps, extra_columns(options_)}));
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    for (auto const dtype : options_.dtypes) run_type(dtype);
  }
  print_close();
  return wrong_ == 0 ? 0 : 1;
}

void Sweep::print_close() {
  double const average = bus_lines_ == 0 ? 0.0 : bus_sum_ / bus_lines_;
  print(closing_text(wrong_, average));
  if (options_.limit)
    print(fmt::format("# Geometric mean of time over limit: {:.2f}\n", geometric_mean(limit_ratios_)));
  if (peer_ != nullptr) {
    print(fmt::format("# Geometric mean of mpi over weft: call {:.2f}\n", geometric_mean(call_ratios_)));
    if (options_.cost)
      print(fmt::format("# Geometric mean of mpi over weft: cost {:.2f}\n", geometric_mean(cost_ratios_)));
  }
  if (options_.memory_report) {
    double const peak = board_.max(peak_memory_mib());
    print(fmt::format("# {:<20} : buffers {:.1f} MB | peak of a rank {:.1f} MB\n", "Memory usage",
                      static_cast<double>(own_.send.view().bytes() + own_.recv.view().bytes()) / (1 << 20), peak));
  }
  print(fmt::format("# Collective test concluded: {}_perf\n#\n", case_.name()));
  if (board_.rank() != 0) return;
  if (document_) document_->write(options_.output_file, wrong_, average);
  if (!options_.json.empty()) append_json_lines(options_.json, json_lines_);
}

std::vector<int> Sweep::roots() const {
  if (!case_.rooted()) return {0};
  if (!options_.roots.empty()) return options_.roots;
  std::vector<int> all(static_cast<std::size_t>(board_.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void Sweep::run_type(DataType dtype) {
  allocate(dtype);
  for (auto const op : case_.reduces() ? options_.ops : std::vector<ReduceOp>{ReduceOp::sum}) {
    if (case_.reduces() && !supports(dtype, op)) continue;
    for (int const root : roots()) run_choice({dtype, op, root});
  }
}

Sweep::Memory Sweep::allocate_memory(std::size_t elements, DataType dtype, bool symmetric) {
  if (!symmetric) return {Buffer::host(elements, dtype), Buffer::host(elements, dtype)};
  return {communicator_.allocate(elements, dtype), communicator_.allocate(elements, dtype)};
}

void Sweep::allocate(DataType dtype) {
  own_ = {};
  peers_ = {};
  auto const most = case_.room(case_.counts(options_.max_bytes / size_of(dtype), board_.ranks()));
  auto const elements = std::max<std::size_t>(1, most + static_cast<std::size_t>(options_.unalign));
  own_ = allocate_memory(elements, dtype, options_.memory == MemoryKind::symmetric);
  if (peer_ != nullptr) peers_ = allocate_memory(elements, dtype, false);
}

Operands Sweep::operands(Memory const& memory, Counts counts, Choice const& choice, bool in_place) const {
  auto const first = static_cast<std::size_t>(options_.unalign);
  auto const room = case_.room(counts);
  return case_.operands(memory.send.view().slice(first, room), memory.recv.view().slice(first, room), counts,
                        place(choice.root), in_place);
}

std::function<void()> Sweep::weft_call(Operands const& on, Choice const& choice) {
  return [this, on, options = CallOptions{choice.op, choice.root, {}}] {
    start_weft(case_.op(), communicator_, on, options).wait();
    if (options_.blocking == 1) communicator_.barrier().wait();
  };
}

Side Sweep::weft_side(Counts counts, Choice const& choice, bool in_place) {
  auto const on = operands(own_, counts, choice, in_place);
  int const calls = options_.aggregate;
  if (calls == 1) return {"weft", on, weft_call(on, choice), 1};
  return {"weft", on,
          [calls, one = weft_call(on, choice)] {
            for (int i = 0; i < calls; ++i) one();
          },
          calls};
}

Side Sweep::peer_side(Counts counts, Choice const& choice) {
  auto const on = operands(peers_, counts, choice, false);
  int const calls = options_.aggregate;
  return {"mpi", on,
          [calls, one = peer_->call(case_, on, choice.op, place(choice.root))] {
            for (int i = 0; i < calls; ++i) one();
          },
          calls};
}

SizeRounds Sweep::sides_of(std::size_t bytes, Choice const& choice, Entry& entry) {
  entry.counts = case_.counts(bytes / size_of(choice.dtype), board_.ranks());
  std::vector<Side> sides{weft_side(entry.counts, choice, false)};
  if (peer_ != nullptr) {
    entry.peer = sides.size();
    sides.push_back(peer_side(entry.counts, choice));
  }
  if (options_.in_place) {
    entry.in_place = sides.size();
    sides.push_back(weft_side(entry.counts, choice, true));
  }
  return {std::max(entry.counts.send, entry.counts.recv) * size_of(choice.dtype), std::move(sides)};
}

Timing Sweep::timing_of(SizeRounds const& rounds, std::size_t side, Entry const& entry, Canary best,
                        Choice const& choice, bool checked) {
  Timing timing;
  timing.seconds = std::max(0.0, rounds.figures(side, best).call);
  auto const bytes = case_.algorithm_elements(entry.counts, board_.ranks()) * size_of(choice.dtype);
  if (timing.seconds > 0) timing.algorithm_gbps = static_cast<double>(bytes) / timing.seconds / 1e9;
  timing.bus_gbps = timing.algorithm_gbps * case_.bus_factor(board_.ranks());
  bus_sum_ += timing.bus_gbps;
  ++bus_lines_;
  if (checked && options_.checks > 0) {
    auto const& on = rounds.sides()[side].on;
    timing.wrong = count_wrong(board_, case_, on, entry.counts, place(choice.root), choice.op, options_.checks,
                               weft_call(on, choice));
    wrong_ += *timing.wrong;
  }
  return timing;
}

double Sweep::overlap_of(Side const& side, Choice const& choice, std::size_t bytes) {
  constexpr std::size_t kMib = 1 << 20;
  int const iterations = bytes <= kMib ? options_.loop.iterations : std::max(2, options_.loop.iterations / 8);
  auto const start = [&](Stream const& stream) {
    return start_weft(case_.op(), communicator_, side.on, {choice.op, choice.root, {stream, {}}});
  };
  return overlap_->measure(start, iterations, std::min(options_.rounds, 3));
}

Detail Sweep::detail_of(SizeRounds const& rounds, Entry const& entry, Canary best, Choice const& choice) {
  auto const figures = rounds.figures(entry.out_of_place, best);
  Detail detail;
  detail.call = figures.call;
  detail.rounds_kept = rounds.kept(best);
  detail.rounds = rounds.measured();
  if (options_.loop.cost) detail.cost = figures.cost;
  if (limit_) {
    detail.limit = limit_->seconds(rounds.bytes(), choice.root);
    limit_ratios_.push_back(ratio(detail.call, *detail.limit));
  }
  if (entry.peer) {
    auto const peer = rounds.figures(*entry.peer, best);
    detail.peer_call = peer.call;
    call_ratios_.push_back(ratio(peer.call, detail.call));
    if (options_.loop.cost) detail.peer_cost = peer.cost;
    if (options_.loop.cost) cost_ratios_.push_back(ratio(peer.cost, figures.cost));
  }
  if (overlap_) detail.overlap = overlap_of(rounds.sides()[entry.out_of_place], choice, rounds.bytes());
  return detail;
}

void Sweep::finish_line(SizeRounds const& rounds, Entry const& entry, Canary best, Choice const& choice) {
  Line line;
  line.bytes = rounds.bytes();
  line.count = entry.counts.parameter;
  line.dtype = choice.dtype;
  line.op = case_.reduces() ? nccl_name(choice.op) : "none";
  line.root = case_.rooted() ? choice.root : -1;
  line.out_of_place = timing_of(rounds, entry.out_of_place, entry, best, choice, true);
  if (entry.in_place) {
    line.in_place = timing_of(rounds, *entry.in_place, entry, best, choice, case_.checks_in_place());
  }
  auto const detail = detail_of(rounds, entry, best, choice);
  line.extras = extra_texts(options_, detail);
  if (options_.timestamps) line.timestamp = now_text();
  print(table_line(line));
  if (document_) document_->add(line, options_.loop.iterations);
  if (!options_.json.empty()) {
    json_lines_.push_back(json_line(case_, options_, board_.ranks(), line, detail, best));
  }
}

void Sweep::run_choice(Choice const& choice) {
  Stopwatch watch(board_, choice.dtype, options_.loop);
  std::vector<SizeRounds> rounds;
  std::vector<Entry> entries;
  for (auto const bytes : options_.sizes()) {
    rounds.push_back(sides_of(bytes, choice, entries.emplace_back()));
    if (options_.warmup > 0) rounds.back().warm_up(watch, options_.warmup);
  }
  auto const best = run_rounds(rounds, watch, options_.rounds);
  for (std::size_t i = 0; i < rounds.size(); ++i) finish_line(rounds[i], entries[i], best, choice);
}

}  // namespace weft::perf
