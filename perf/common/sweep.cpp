#include "common/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "common/head.hpp"
#include "common/names.hpp"
#include "common/rounds.hpp"
#include "common/weft_calls.hpp"
#include "weft/error.hpp"

namespace weft::perf {

Sweep::Sweep(Case const& what, Options const& options, Communicator& communicator)
    : case_(what), options_(options), communicator_(communicator), board_(meeting_of(communicator)) {
  if (!options.roots.empty() && options.roots.front() >= board_.ranks()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("-r: there is no rank {} among {}", options.roots.front(), board_.ranks()));
  }
  if (!what.supports(board_.ranks())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}_perf needs a power of 2 ranks, not {}", what.name(), board_.ranks()));
  }
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
  auto const where = places();
  print(head_text(case_, options_, where));
  if (!options_.output_file.empty()) document_.emplace(case_, options_, where);
  print(table_header({options_.cpu_time, options_.timestamps, extra_columns(options_)}));
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    for (auto const dtype : options_.dtypes) run_type(dtype);
  }
  close_totals();
  print_close();
  return totals_.wrong == 0 && totals_.fast_enough.value_or(true) ? 0 : 1;
}

void Sweep::close_totals() {
  totals_.average_gbps = average_bus_gbps(timings_);
  if (options_.min_bus_gbps) totals_.fast_enough = is_fast_enough(totals_.average_gbps, *options_.min_bus_gbps);
}

void Sweep::print_close() {
  print(closing_text(totals_));
  totals_.has_wishes = wanted_canary().is_anything();
  print(means() + disturbed_text(totals_));
  if (options_.memory_report) print(fmt::format("# {:<20} : {}\n", "Memory usage", memory_usage()));
  print(fmt::format("# Collective test concluded: {}_perf\n#\n", case_.name()));
  if (board_.rank() != 0) return;
  if (document_) document_->write(options_.output_file, totals_);
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

std::size_t Sweep::elements_of(DataType dtype) const {
  auto const most = case_.room(case_.counts(options_.max_bytes / size_of(dtype), board_.ranks()));
  return std::max<std::size_t>(1, most + static_cast<std::size_t>(options_.unalign));
}

Operands Sweep::operands(Memory const& memory, Counts counts, Choice const& choice, bool in_place) const {
  auto const first = static_cast<std::size_t>(options_.unalign);
  auto const room = case_.room(counts);
  return case_.operands(memory.send.view().slice(first, room), memory.recv.view().slice(first, room), counts,
                        place(choice.root), in_place);
}

Timing Sweep::timing_of(double seconds, Counts counts, DataType dtype) {
  Timing timing;
  timing.seconds = seconds;
  auto const bytes = case_.algorithm_elements(counts, board_.ranks()) * size_of(dtype);
  if (timing.seconds > 0) timing.algorithm_gbps = static_cast<double>(bytes) / timing.seconds / 1e9;
  timing.bus_gbps = timing.algorithm_gbps * case_.bus_factor(board_.ranks());
  timings_.push_back(timing);
  return timing;
}

void Sweep::note_wrong(Timing& timing, double wrong) {
  timing.wrong = wrong;
  totals_.wrong += wrong;
}

Line Sweep::line_of(std::size_t bytes, Counts counts, Choice const& choice) const {
  Line line;
  line.bytes = bytes;
  line.count = counts.parameter;
  line.dtype = choice.dtype;
  line.op = case_.reduces() ? nccl_name(choice.op) : "none";
  line.root = case_.rooted() ? choice.root : -1;
  return line;
}

void Sweep::print_line(Line& line, Detail const& detail) {
  line.extras = extra_texts(options_, detail);
  ++totals_.lines;
  totals_.disturbed += detail.rounds_kept == 0 ? 1 : 0;
  if (options_.timestamps) line.timestamp = now_text();
  print(table_line(line));
  if (document_) document_->add(line, detail);
  if (!options_.json.empty() && board_.rank() == 0)  // written at once, because -N 0 runs endlessly
    append_json_lines(options_.json, {json_line(case_, options_, board_.ranks(), line, detail)});
}

}  // namespace weft::perf
