#include "optim/rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "weft/error.hpp"

namespace weft {
namespace {

using kernels::StateCode;

constexpr std::array<std::string_view, 3> kAdamStates{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
constexpr std::array<std::string_view, 1> kSgdStates{"momentum_buffer"};
constexpr std::array<std::string_view, 1> kAdagradStates{"sum"};

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

template <typename Options>
kernels::LambNorms run_adam(Options const& o, kernels::Decay decay, double lr, std::int64_t step,
                            kernels::UpdateArrays const& arrays, std::size_t count, kernels::GradientUse const& use) {
  auto const scalars = kernels::adam_scalars(lr, o.beta1, o.beta2, o.eps, o.weight_decay, decay, step);
  kernels::adam(arrays, count, scalars, o.amsgrad, use);
  return {};
}

kernels::LambScalars lamb_scalars(LambOptions const& o, std::int64_t step) {
  return kernels::lamb_scalars(o.beta1, o.beta2, o.eps, o.weight_decay, step);
}

}  // namespace

std::span<std::string_view const> state_names(OptimizerOptions const& options) noexcept {
  using Names = std::span<std::string_view const>;
  auto const adam = [](bool amsgrad) { return Names(kAdamStates).first(amsgrad ? 3 : 2); };
  return std::visit(Overloaded{[&](AdamWOptions const& o) { return adam(o.amsgrad); },
                               [&](AdamOptions const& o) { return adam(o.amsgrad); },
                               [](SgdOptions const& o) { return Names(kSgdStates).first(o.momentum != 0 ? 1 : 0); },
                               [&](LambOptions const&) { return adam(false); },
                               [](LionOptions const&) { return Names(kAdamStates).first(1); },
                               [](AdagradOptions const&) { return Names(kAdagradStates); }},
                    options);
}

void check_change(std::string_view call, std::size_t group, OptimizerOptions const& current,
                  OptimizerOptions const& wanted) {
  check(wanted);
  if (wanted.index() == current.index() && std::ranges::equal(state_names(wanted), state_names(current))) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: group {} is {} with {} states, the options are {}'s with {}; make another optimizer", call,
                  group, name_of(current), state_names(current).size(), name_of(wanted), state_names(wanted).size()));
}

StateKind state_kind(OptimizerOptions const& options, std::size_t which) noexcept {
  auto const name = state_names(options)[which];
  if (auto const* const adagrad = std::get_if<AdagradOptions>(&options)) {
    return {name, StateCode::positive_fourths, static_cast<float>(adagrad->initial_accumulator_value)};
  }
  return {name, which == 0 ? StateCode::signed_squares : StateCode::positive_fourths, 0};
}

bool maximizes(OptimizerOptions const& options) noexcept {
  return std::visit([](auto const& o) { return o.maximize; }, options);
}

bool needs_norms(OptimizerOptions const& options) noexcept {
  return std::holds_alternative<LambOptions>(options);
}

kernels::LambNorms run_update(OptimizerOptions const& options, double lr, std::int64_t step,
                              kernels::UpdateArrays const& arrays, std::size_t count, kernels::GradientUse const& use) {
  return std::visit(
      Overloaded{
          [&](AdamWOptions const& o) { return run_adam(o, kernels::Decay::decoupled, lr, step, arrays, count, use); },
          [&](AdamOptions const& o) { return run_adam(o, kernels::Decay::l2, lr, step, arrays, count, use); },
          [&](SgdOptions const& o) {
            kernels::sgd(arrays, count,
                         kernels::sgd_scalars(lr, o.momentum, o.dampening, o.weight_decay, o.nesterov, step), use);
            return kernels::LambNorms{};
          },
          [&](LambOptions const& o) { return kernels::lamb_moments(arrays, count, lamb_scalars(o, step), use); },
          [&](LionOptions const& o) {
            kernels::lion(arrays, count, kernels::lion_scalars(lr, o.beta1, o.beta2, o.weight_decay), use);
            return kernels::LambNorms{};
          },
          [&](AdagradOptions const& o) {
            kernels::adagrad(arrays, count, kernels::adagrad_scalars(lr, o.lr_decay, o.weight_decay, o.eps, step), use);
            return kernels::LambNorms{};
          }},
      options);
}

void run_apply(OptimizerOptions const& options, double lr, std::int64_t step, kernels::UpdateArrays const& arrays,
               std::size_t count, kernels::LambNorms const& norms) {
  auto const& lamb = std::get<LambOptions>(options);
  kernels::lamb_apply(arrays, count, lamb_scalars(lamb, step), kernels::lamb_step_size(lr, norms));
}

}  // namespace weft
