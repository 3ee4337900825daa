#include "peers/loop.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/measure.hpp"
#include "common/plain_memory.hpp"
#include "common/rounds.hpp"
#include "common/verify.hpp"
#include "weft/error.hpp"

namespace weft::perf {

std::vector<LoopResult> run_loop(Meeting const& meeting, LoopJob const& job, MakeCall const& make_call) {
  auto const what = make_case(job.op);
  if (what == nullptr || job.sizes.empty()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("peer loop: no operation '{}', or no sizes", job.op));
  }
  constexpr std::size_t kSize = sizeof(float);
  Board board(meeting);
  Place const place{meeting.rank, meeting.ranks, 0};
  Stopwatch watch(board, DataType::f32, {job.iterations, true, true, Across::max});
  auto const most = what->room(what->counts(job.sizes.back() / kSize, meeting.ranks));
  auto const send = plain_buffer(most, DataType::f32);
  auto const recv = plain_buffer(most, DataType::f32);
  std::vector<SizeRounds> rounds;
  for (auto const size : job.sizes) {
    auto const counts = what->counts(size / kSize, meeting.ranks);
    auto const room = what->room(counts);
    auto const on = what->operands(send.view().slice(0, room), recv.view().slice(0, room), counts, place, false);
    auto const bytes = std::max(counts.send, counts.recv) * kSize;
    rounds.push_back({bytes, {Side{"peer", on, make_call(what->op(), on, place), 1}}});
    rounds.back().warm_up(watch, job.warmup);
  }
  auto const quiet = run_rounds(rounds, watch, job.rounds);
  std::vector<LoopResult> results;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    auto const& side = rounds[i].sides().front();
    double const wrong = job.check
                             ? count_wrong(board, *what, side.on, what->counts(job.sizes[i] / kSize, meeting.ranks),
                                           place, ReduceOp::sum, 1, side.call)
                             : 0;
    results.push_back({rounds[i].bytes(), rounds[i].figures(0, quiet), rounds[i].worst_canary(quiet),
                       rounds[i].least_canary(quiet), wrong});
  }
  return results;
}

std::string json_lines(std::string const& library, std::string const& version, LoopJob const& job, int ranks,
                       std::vector<LoopResult> const& results) {
  constexpr double kMicroseconds = 1e6;
  std::string text;
  for (auto const& result : results) {
    text += fmt::format(
        R"({{"library": "{}", "version": "{}", "op": "{}", "memory": "private", "ranks": {}, "bytes": {}, )"
        R"("time_us": {:.4f}, "call_us": {:.4f}, "cost_us": {:.4f}, "call_base_us": {:.4f}, "cost_base_us": {:.4f}, )"
        R"("canary_copy_us": {:.3f}, )"
        R"("canary_barrier_us": {:.4f}, "canary_barrier_least_us": {:.4f}, )"
        R"("canary_work_us": {:.4f}, "canary_work_least_us": {:.4f}, "wrong": {:g}}})"
        "\n",
        library, version, job.op, ranks, result.bytes, result.figures.call * kMicroseconds,
        result.figures.call * kMicroseconds, result.figures.cost * kMicroseconds,
        result.figures.call_base * kMicroseconds, result.figures.cost_base * kMicroseconds,
        result.canary.copy * kMicroseconds, result.canary.barrier * kMicroseconds,
        result.least_canary.barrier * kMicroseconds, result.canary.work * kMicroseconds,
        result.least_canary.work * kMicroseconds, result.wrong);
  }
  return text;
}

}  // namespace weft::perf
