#include "weft/grad_scaler.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/error.hpp"

namespace weft {
namespace {

void require(bool holds, char const* option, double value, char const* allowed) {
  if (holds) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("GradScaler: {} is {}; it must be {}", option, value, allowed));
}

void check_scale(double scale) {
  auto const narrow = static_cast<float>(scale);
  require(std::isnormal(narrow) && narrow > 0 && std::isnormal(1 / narrow), "scale", scale,
          "above 0 and finite, and so must be its inverse");
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions const& options) : options_(options), hysteresis_left_(options.hysteresis) {
  check_scale(options.init_scale);
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor", options.growth_factor,
          "above 1 and finite");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
          "between 0 and 1");
  require(options.growth_interval >= 1, "growth_interval", options.growth_interval, "at least 1");
  require(options.hysteresis >= 1, "hysteresis", options.hysteresis, "at least 1");
  if (options.enabled) set_scale(options.init_scale);
}

// Scales that are not ordinary floats, or have no ordinary inverse, are never taken.
void GradScaler::set_scale(double scale) noexcept {
  auto const narrow = static_cast<float>(scale);
  if (!std::isnormal(narrow) || !std::isnormal(1 / narrow)) return;
  scale_ = narrow;
  inv_scale_ = 1 / narrow;
}

void GradScaler::update() noexcept {
  bool const overflowed = found_inf_ != 0;
  found_inf_ = 0;
  if (!options_.enabled) return;
  if (overflowed) {
    growth_tracker_ = 0;
    if (hysteresis_left_ > 0) --hysteresis_left_;
    if (hysteresis_left_ == 0) set_scale(static_cast<double>(scale_) * options_.backoff_factor);
    return;
  }
  if (++growth_tracker_ < options_.growth_interval) return;
  set_scale(static_cast<double>(scale_) * options_.growth_factor);
  growth_tracker_ = 0;
  hysteresis_left_ = options_.hysteresis;
}

void GradScaler::set_state(State const& state) {
  check_scale(state.scale);
  require(state.growth_tracker >= 0, "growth_tracker", static_cast<double>(state.growth_tracker), "at least 0");
  require(state.hysteresis_left >= 0, "hysteresis_left", static_cast<double>(state.hysteresis_left), "at least 0");
  if (options_.enabled) set_scale(state.scale);
  growth_tracker_ = state.growth_tracker;
  hysteresis_left_ = state.hysteresis_left;
}

}  // namespace weft
