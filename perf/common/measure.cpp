#include "common/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "common/median.hpp"

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr std::size_t kCopyBytes = 1 << 20;
/// The fewest calls of a loop over small messages, because fewer cannot be timed well. If the user asks for more, the
/// loop makes as many as asked for, not a multiple.
constexpr int kFewest = 1000;
/// The most calls that are timed one by one.
constexpr int kMostTimed = 4096;

/// About 20 µs of independent additions, in registers and with the same alignment in every program. Otherwise the time
/// would depend on the program, not only on how busy the machine is at the moment.
[[gnu::noinline, gnu::aligned(64)]] void add_much() {
  constexpr int kTurns = 50'000;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  std::uint64_t fourth = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    asm volatile("" : "+r"(++first), "+r"(++second), "+r"(++third), "+r"(++fourth));
  }
}

}  // namespace

Stopwatch::Stopwatch(Board& board, DataType dtype, LoopSettings settings)
    : board_(board),
      pattern_(dtype, board.rank()),
      settings_(settings),
      copy_from_(Buffer::host(kCopyBytes, DataType::u8)),
      copy_to_(Buffer::host(kCopyBytes, DataType::u8)) {}

Stopwatch::Effort Stopwatch::effort(std::size_t bytes) const noexcept {
  constexpr std::size_t kKib = 1024;
  int const iterations = settings_.iterations;
  if (bytes <= kBatchedBytes) {
    auto const more = board_.crowded() ? std::min(iterations * 10, kFewest / 5) : std::min(iterations * 50, kFewest);
    return {std::max(iterations, more), 5};
  }
  if (bytes <= 128 * kKib) return {iterations * 4, 3};
  if (bytes <= 1024 * kKib) return {iterations, 3};
  if (bytes <= 8192 * kKib) return {std::max(2, iterations / 2), 2};
  if (bytes <= 32768 * kKib) return {std::max(2, iterations / 5), 1};
  return {std::max(2, iterations / 8), 1};
}

void Stopwatch::warm_up(Side const& side, int iterations) {
  static_cast<void>(loop(side, std::max(1, iterations), Body::write_call_read));
}

double Stopwatch::loop(Side const& side, int iterations, Body body) {
  bool const barrier = body == Body::write_barrier_read || body == Body::write_barrier_call_read;
  bool const call = body == Body::write_call_read || body == Body::write_barrier_call_read;
  board_.barrier();
  auto const start = Clock::now();
  for (int i = 0; i < iterations; ++i) {
    if (settings_.touch) pattern_.write(side.on.send, ++turn_);
    if (barrier) board_.barrier();
    if (call) side.call();
    if (settings_.touch) read_all(side.on.recv);
  }
  return board_.combine(seconds_since(start), settings_.across) / iterations / side.calls;
}

double Stopwatch::best_loop(Side const& side, Effort effort, Body body) {
  double best = std::numeric_limits<double>::max();
  for (int batch = 0; batch < effort.batches; ++batch) best = std::min(best, loop(side, effort.iterations, body));
  return best;
}

int Stopwatch::iterations(std::size_t bytes) const noexcept {
  int const wanted = effort(bytes).iterations;
  return bytes <= kBatchedBytes ? wanted : std::min(wanted, kMostTimed);
}

double Stopwatch::timed_calls(Side const& side, int iterations) {
  std::vector<double> took(static_cast<std::size_t>(iterations));
  for (auto& seconds : took) {
    if (settings_.touch) pattern_.write(side.on.send, ++turn_);
    board_.barrier();
    auto const start = Clock::now();
    side.call();
    seconds = seconds_since(start);
    if (settings_.touch) read_all(side.on.recv);
  }
  return median(board_.combine(took, settings_.across)) / side.calls;
}

Sample Stopwatch::measure(Side const& side, std::size_t bytes) {
  Sample sample;
  auto const how = effort(bytes);
  if (bytes <= kBatchedBytes) {
    sample.call_loop = best_loop(side, how, Body::write_barrier_call_read);
    sample.call_base = best_loop(side, how, Body::write_barrier_read);
  } else {
    sample.call_loop = timed_calls(side, iterations(bytes));
  }
  if (!settings_.cost) return sample;
  sample.cost_loop = best_loop(side, how, Body::write_call_read);
  sample.cost_base = best_loop(side, how, Body::write_read);
  return sample;
}

Canary Stopwatch::canary() {
  std::vector<double> copies;
  std::vector<double> barriers;
  std::vector<double> works;
  int const exchanges = board_.crowded() ? 50 : 300;
  for (int repeat = 0; repeat < 3; ++repeat) {
    board_.barrier();
    auto start = Clock::now();
    std::memcpy(copy_to_.data(), copy_from_.data(), kCopyBytes);
    read_all({copy_to_.data(), 64, DataType::u8});
    copies.push_back(seconds_since(start));
    start = Clock::now();
    add_much();
    works.push_back(seconds_since(start));
    board_.barrier();
    start = Clock::now();
    for (int i = 0; i < exchanges; ++i) board_.barrier();
    barriers.push_back(seconds_since(start) / exchanges);
  }
  auto const slowest = [&](std::vector<double> const& of) { return median(board_.combine(of, Across::max)); };
  return {slowest(copies), slowest(barriers), slowest(works)};
}

double Stopwatch::await(WantedCanary const& wanted, double within, double patience) {
  auto const is_near = [&](double is, std::optional<double> wish) {
    return !wish || std::max(is / *wish, *wish / is) <= within;
  };
  auto const is_met = [&](Canary const& is) {
    return is_near(is.barrier, wanted.barrier) && is_near(is.work, wanted.work);
  };
  auto const start = Clock::now();
  double waited = 0;
  while (waited < patience && !is_met(canary())) waited = board_.combine(seconds_since(start), Across::max);
  return waited;
}

}  // namespace weft::perf
