#include "common/overlap.hpp"

#include <algorithm>
#include <chrono>

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;

void keep_in_register(double& value) noexcept {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(value));
#else
  asm volatile("" : "+m"(value));
#endif
}

}  // namespace

OverlapMeter::OverlapMeter(Board& board) : board_(board), stream_(Stream::cpu({"weft-perf", {}})) {}

// A chain of multiplications in registers, which uses only its own core.
void OverlapMeter::compute(std::size_t turns) {
  double value = state_;
  for (std::size_t i = 0; i < turns; ++i) {
    value = value * 0.999 + 0.001;
    keep_in_register(value);  // neither unrolled nor left out
  }
  state_ = value;
}

double OverlapMeter::timed(int iterations, std::function<void()> const& body) {
  board_.barrier();
  auto const start = Clock::now();
  for (int i = 0; i < iterations; ++i) body();
  std::chrono::duration<double> const took = Clock::now() - start;
  return board_.max(took.count()) / iterations;
}

std::size_t OverlapMeter::turns_lasting(double seconds) {
  constexpr std::size_t kProbe = 100000;
  double best = 1;
  for (int repeat = 0; repeat < 5; ++repeat) best = std::min(best, timed(1, [&] { compute(kProbe); }));
  return static_cast<std::size_t>(seconds / best * kProbe) + 1;
}

double OverlapMeter::measure(std::function<Work(Stream const&)> const& start, int iterations, int rounds) {
  static_cast<void>(timed(2, [&] { start(stream_).wait(); }));
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    double const communication = timed(iterations, [&] { start(stream_).wait(); });
    auto const turns = turns_lasting(communication);
    double const computation = timed(iterations, [&] { compute(turns); });
    double const overall = timed(iterations, [&] {
      auto const work = start(stream_);
      compute(turns);
      work.wait();
    });
    best = std::max(best, 100 - (overall - computation) / communication * 100);
  }
  return std::min(best, 100.0);
}

}  // namespace weft::perf
