#include "cuda/device_timer.hpp"

#include <algorithm>
#include <chrono>

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

}  // namespace

void DeviceTimer::warm_up(DeviceSide const& side, int calls) {
  board_.barrier();
  for (int i = 0; i < calls; ++i) side.enqueue();
  stream_.synchronize();
}

DeviceSample DeviceTimer::measure(DeviceSide const& side, int iterations) {
  board_.barrier();
  before_.record(stream_);
  auto const start = Clock::now();
  for (int i = 0; i < iterations; ++i) side.enqueue();
  auto const enqueued = Clock::now();
  after_.record(stream_);
  after_.synchronize();
  std::vector<double> const mine{Seconds(before_.elapsed_until(after_)).count(), Seconds(enqueued - start).count()};
  auto const all = board_.combine(mine, across_);
  double const calls = static_cast<double>(iterations) * side.calls;
  return {all[0] / calls, all[1] / calls};
}

void DeviceRounds::warm_up(DeviceTimer& timer, int calls) {
  for (auto const& side : sides_) timer.warm_up(side, calls);
}

void DeviceRounds::measure(DeviceTimer& timer, int iterations) {
  for (std::size_t i = 0; i < sides_.size(); ++i) {
    auto const side = (i + rounds_) % sides_.size();
    auto const sample = timer.measure(sides_[side], iterations);
    auto& best = best_[side];
    best = rounds_ == 0 ? sample : DeviceSample{std::min(best.device, sample.device), std::min(best.host, sample.host)};
  }
  ++rounds_;
}

}  // namespace weft::perf
