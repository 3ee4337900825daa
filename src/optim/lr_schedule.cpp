#include "weft/lr_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/error.hpp"

namespace weft {
namespace {

template <typename Value>
void require(bool holds, char const* member, Value value, char const* allowed) {
  if (holds) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("LrSchedule: {} is {}; it must be {}", member, value, allowed));
}

}  // namespace

void LrSchedule::check() const {
  require(peak_lr >= 0 && std::isfinite(peak_lr), "peak_lr", peak_lr, "finite and at least 0");
  require(final_lr >= 0 && std::isfinite(final_lr), "final_lr", final_lr, "finite and at least 0");
  require(warmup_steps >= 0, "warmup_steps", warmup_steps, "at least 0");
  bool const ends = decay == LrDecay::linear || decay == LrDecay::cosine;
  require(!ends || total_steps > warmup_steps, "total_steps", total_steps,
          "above warmup_steps, for the learning rate to fall in between");
}

double LrSchedule::at(std::int64_t applied) const noexcept {
  auto const step = applied + 1;
  if (step <= warmup_steps) return peak_lr * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (decay == LrDecay::constant) return peak_lr;
  if (decay == LrDecay::inverse_square_root) {
    auto const from = static_cast<double>(std::max<std::int64_t>(warmup_steps, 1));
    return peak_lr * std::sqrt(from / static_cast<double>(step));
  }
  auto const steps = static_cast<double>(total_steps - warmup_steps);
  double const done = std::min(1.0, static_cast<double>(step - warmup_steps) / steps);
  double const left = decay == LrDecay::linear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return final_lr + (peak_lr - final_lr) * left;
}

}  // namespace weft
