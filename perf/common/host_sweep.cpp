#include "common/host_sweep.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "common/names.hpp"
#include "common/plain_memory.hpp"
#include "common/verify.hpp"
#include "common/weft_calls.hpp"

namespace weft::perf {
namespace {

double peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace

HostSweep::HostSweep(Case const& what, Options const& options, MpiPeer const* peer, Communicator& communicator)
    : Sweep(what, options, communicator), peer_(peer) {
  auto const largest = std::max<std::size_t>(64, options.max_bytes);
  if (options.limit) limit_.emplace(meeting_of(communicator), board_, what, largest);
  if (options.overlap) overlap_.emplace(board_);
}

std::string HostSweep::means() const {
  std::string text;
  if (options_.limit)
    text += fmt::format("# Geometric mean of time over limit: {:.2f}\n", geometric_mean(limit_ratios_));
  if (peer_ == nullptr) return text;
  if (peer_lacks_some_) text += "# mpi n/a: MPI has no such data type, or no such reduction of it\n";
  if (call_ratios_.empty()) return text;
  text += fmt::format("# Geometric mean of mpi over weft: call {:.2f}\n", geometric_mean(call_ratios_));
  if (options_.cost)
    text += fmt::format("# Geometric mean of mpi over weft: cost {:.2f}\n", geometric_mean(cost_ratios_));
  return text;
}

std::string HostSweep::memory_usage() {
  return fmt::format("buffers {:.1f} MB | peak of a rank {:.1f} MB", own_.mib(), board_.max(peak_memory_mib()));
}

HostSweep::Memory HostSweep::allocate_memory(std::size_t elements, DataType dtype, bool symmetric) {
  if (!symmetric) return {plain_buffer(elements, dtype), plain_buffer(elements, dtype)};
  return {communicator_.allocate(elements, dtype), communicator_.allocate(elements, dtype)};
}

void HostSweep::allocate(DataType dtype) {
  own_ = {};
  peers_ = {};
  auto const elements = elements_of(dtype);
  own_ = allocate_memory(elements, dtype, options_.memory == MemoryKind::symmetric);
  if (peer_ != nullptr) peers_ = allocate_memory(elements, dtype, false);
}

std::function<void()> HostSweep::weft_call(Operands const& on, Choice const& choice) {
  auto call = perf::weft_call(case_.op(), communicator_, on, {choice.op, choice.root, {}});
  if (options_.blocking != 1) return call;
  return [this, call = std::move(call)] {
    call();
    communicator_.barrier();
  };
}

Side HostSweep::weft_side(Counts counts, Choice const& choice, bool in_place) {
  auto const on = operands(own_, counts, choice, in_place);
  int const calls = options_.aggregate;
  if (calls == 1) return {"weft", on, weft_call(on, choice), 1};
  return {"weft", on,
          [calls, one = weft_call(on, choice)] {
            for (int i = 0; i < calls; ++i) one();
          },
          calls};
}

std::optional<Side> HostSweep::peer_side(Counts counts, Choice const& choice) {
  auto const on = operands(peers_, counts, choice, false);
  auto const call = peer_->call(case_, on, choice.op, place(choice.root));
  if (!call) return std::nullopt;
  int const calls = options_.aggregate;
  return Side{"mpi", on,
              [calls, call] {
                for (int i = 0; i < calls; ++i) call();
              },
              calls};
}

SizeRounds HostSweep::sides_of(std::size_t bytes, Choice const& choice, Entry& entry) {
  entry.counts = case_.counts(bytes / size_of(choice.dtype), board_.ranks());
  std::vector<Side> sides{weft_side(entry.counts, choice, false)};
  if (peer_ != nullptr) {
    if (auto side = peer_side(entry.counts, choice)) {
      entry.peer = sides.size();
      sides.push_back(std::move(*side));
    } else {
      peer_lacks_some_ = true;
    }
  }
  if (options_.in_place) {
    entry.in_place = sides.size();
    sides.push_back(weft_side(entry.counts, choice, true));
  }
  return {std::max(entry.counts.send, entry.counts.recv) * size_of(choice.dtype), std::move(sides)};
}

Timing HostSweep::side_timing(SizeRounds const& rounds, std::size_t side, Entry const& entry, Quiet const& quiet,
                              Choice const& choice, bool checked) {
  Timing timing = timing_of(std::max(0.0, rounds.figures(side, quiet).call), entry.counts, choice.dtype);
  if (checked && options_.checks > 0) {
    auto const& on = rounds.sides()[side].on;
    note_wrong(timing, count_wrong(board_, case_, on, entry.counts, place(choice.root), choice.op, options_.checks,
                                   weft_call(on, choice)));
  }
  return timing;
}

double HostSweep::overlap_of(Side const& side, Choice const& choice, std::size_t bytes) {
  constexpr std::size_t kMib = 1 << 20;
  int const iterations = bytes <= kMib ? options_.loop.iterations : std::max(2, options_.loop.iterations / 8);
  auto const start = [&](Stream const& stream) {
    return start_weft(case_.op(), communicator_, side.on, {choice.op, choice.root, {stream, {}}});
  };
  return overlap_->measure(start, iterations, std::min(options_.rounds, 3));
}

Detail HostSweep::detail_of(SizeRounds const& rounds, Entry const& entry, Quiet const& quiet, Choice const& choice) {
  auto const figures = rounds.figures(entry.out_of_place, quiet);
  Detail detail;
  detail.call = figures.call;
  detail.iterations = entry.iterations;
  detail.canary = rounds.worst_canary(quiet);
  detail.least_canary = rounds.least_canary(quiet);
  detail.rounds_kept = rounds.kept(quiet);
  detail.rounds = rounds.measured();
  detail.call_base = figures.call_base;
  if (options_.loop.cost) {
    detail.cost = figures.cost;
    detail.cost_base = figures.cost_base;
  }
  if (limit_) {
    detail.limit = limit_->seconds(rounds.bytes(), choice.root);
    limit_ratios_.push_back(ratio(detail.call, *detail.limit));
  }
  if (entry.peer) {
    auto const peer = rounds.figures(*entry.peer, quiet);
    detail.peer_call = peer.call;
    detail.peer_call_base = peer.call_base;
    call_ratios_.push_back(ratio(peer.call, detail.call));
    if (options_.loop.cost) {
      detail.peer_cost = peer.cost;
      detail.peer_cost_base = peer.cost_base;
      cost_ratios_.push_back(ratio(peer.cost, figures.cost));
    }
  }
  if (overlap_) detail.overlap = overlap_of(rounds.sides()[entry.out_of_place], choice, rounds.bytes());
  return detail;
}

void HostSweep::finish_line(SizeRounds const& rounds, Entry const& entry, Quiet const& quiet, Choice const& choice) {
  Line line = line_of(rounds.bytes(), entry.counts, choice);
  line.out_of_place = side_timing(rounds, entry.out_of_place, entry, quiet, choice, true);
  if (entry.in_place) {
    line.in_place = side_timing(rounds, *entry.in_place, entry, quiet, choice, case_.checks_in_place());
  }
  print_line(line, detail_of(rounds, entry, quiet, choice));
}

void HostSweep::run_choice(Choice const& choice) {
  Stopwatch watch(board_, choice.dtype, options_.loop);
  std::vector<SizeRounds> rounds;
  std::vector<Entry> entries;
  for (auto const bytes : options_.sizes()) {
    rounds.push_back(sides_of(bytes, choice, entries.emplace_back()));
    entries.back().iterations = watch.iterations(rounds.back().bytes());
    if (options_.warmup > 0) rounds.back().warm_up(watch, options_.warmup);
  }
  auto const quiet = run_rounds(rounds, watch, options_.rounds);
  for (std::size_t i = 0; i < rounds.size(); ++i) finish_line(rounds[i], entries[i], quiet, choice);
}

}  // namespace weft::perf
