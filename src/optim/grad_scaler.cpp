#include "weft/grad_scaler.hpp"

#include <fmt/format.h>

#include <cmath>

#include "kernels/math/loss_scale.hpp"
#include "optim/grad_scaler_impl.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void require(bool holds, char const* option, double value, char const* allowed) {
  if (holds) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("GradScaler: {} is {}; it must be {}", option, value, allowed));
}

void check_scale(double scale) {
  auto const narrow = static_cast<float>(scale);
  require(kernels::is_ordinary(narrow) && kernels::is_ordinary(1 / narrow), "scale", scale,
          "above 0 and finite, and so must be its inverse");
}

void check_options(GradScalerOptions const& options) {
  check_scale(options.init_scale);
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor", options.growth_factor,
          "above 1 and finite");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
          "between 0 and 1");
  require(options.growth_interval >= 1, "growth_interval", options.growth_interval, "at least 1");
  require(options.hysteresis >= 1, "hysteresis", options.hysteresis, "at least 1");
}

class HostScaler final : public GradScaler::Impl {
 public:
  [[nodiscard]] kernels::LossScale read() const override { return state_; }
  void write(kernels::LossScale const& state) override { state_ = state; }
  [[nodiscard]] kernels::LossScale* memory() noexcept override { return &state_; }
  [[nodiscard]] Device device() const noexcept override { return {}; }
  void update(kernels::LossScaleRule const& rule, Stream const* /*stream*/) override { kernels::update(state_, rule); }

 private:
  kernels::LossScale state_;
};

std::unique_ptr<GradScaler::Impl> make_scaler(Device device) {
  if (device.type == DeviceType::cpu) return std::make_unique<HostScaler>();
#ifdef WEFT_CUDA_TRAINING
  return make_cuda_scaler(device.index);
#else
  throw Error(ErrorCode::unsupported,
              fmt::format("GradScaler: {}, but this library was built without CUDA", to_string(device)));
#endif
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions const& options, Device device) : options_(options) {
  check_options(options);
  impl_ = make_scaler(device);
  kernels::LossScale state;
  state.hysteresis_left = options.hysteresis;
  if (options.enabled) kernels::set_scale(state, options.init_scale);
  impl_->write(state);
}
GradScaler::~GradScaler() = default;
GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;

float GradScaler::scale() const {
  return impl_->read().scale;
}
float GradScaler::inv_scale() const {
  return impl_->read().inv_scale;
}
float& GradScaler::found_inf() {
  if (impl_->device().type == DeviceType::cpu) return impl_->memory()->found_inf;
  throw Error(ErrorCode::unsupported, fmt::format("GradScaler::found_inf: the scaler is on {}; use found_inf_view()",
                                                  to_string(impl_->device())));
}
BufferView GradScaler::found_inf_view() noexcept {
  return {&impl_->memory()->found_inf, 1, DataType::f32, impl_->device()};
}
ConstBufferView GradScaler::scale_view() const noexcept {
  return {&impl_->memory()->scale, 1, DataType::f32, impl_->device()};
}
StepInputs GradScaler::inputs() const noexcept {
  auto const* const memory = impl_->memory();
  return {.inv_scale = &memory->inv_scale, .found_inf = &memory->found_inf};
}

void GradScaler::update(Stream const* stream) {
  ++updates_;
  impl_->update({options_.growth_factor, options_.backoff_factor, options_.growth_interval, options_.hysteresis,
                 options_.enabled},
                stream);
}

void GradScaler::update_to(double scale) {
  check_scale(scale);
  auto now = impl_->read();
  if (options_.enabled) kernels::set_scale(now, scale);
  now.found_inf = 0;
  impl_->write(now);
  ++updates_;
}

void GradScaler::set_options(GradScalerOptions const& options) {
  check_options(options);
  require(options.enabled == options_.enabled, "enabled", options.enabled ? 1 : 0, "what it was at construction");
  options_ = options;
}

GradScaler::State GradScaler::state() const {
  auto const state = impl_->read();
  return {state.scale, state.growth_tracker, state.hysteresis_left};
}

void GradScaler::set_state(State const& state) {
  check_scale(state.scale);
  require(state.growth_tracker >= 0, "growth_tracker", static_cast<double>(state.growth_tracker), "at least 0");
  require(state.hysteresis_left >= 0, "hysteresis_left", static_cast<double>(state.hysteresis_left), "at least 0");
  auto now = impl_->read();
  if (options_.enabled) kernels::set_scale(now, state.scale);
  now.growth_tracker = state.growth_tracker;
  now.hysteresis_left = static_cast<int>(state.hysteresis_left);
  impl_->write(now);
}

}  // namespace weft
