#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu/optim/block_state.hpp"
#include "kernels/cpu/optim/update.hpp"
#include "weft/optimizer_options.hpp"

namespace weft {

/// One thing that an optimizer keeps of every element.
struct StateKind {
  std::string_view name;  ///< as torch names it
  kernels::StateCode code;
  float initial;
};

/// The names of the states that `options` keep, in the order of kernels::UpdateArrays::state.
[[nodiscard]] std::span<std::string_view const> state_names(OptimizerOptions const& options) noexcept;
/// Checks the options that a group goes on with. @throws Error{invalid_argument}, `call` first, where they make no
/// sense, are another optimizer's, or keep other states.
void check_change(std::string_view call, std::size_t group, OptimizerOptions const& current,
                  OptimizerOptions const& wanted);
[[nodiscard]] StateKind state_kind(OptimizerOptions const& options, std::size_t which) noexcept;

[[nodiscard]] bool maximizes(OptimizerOptions const& options) noexcept;
/// Whether a tensor's step depends on norms of the whole tensor.
[[nodiscard]] bool needs_norms(OptimizerOptions const& options) noexcept;

// Step number `step` (from 1) for a range of one parameter, with `lr` instead of the options' learning rate.

/// The whole step; for an optimizer that needs_norms() only the moments, and returns the range's norms.
kernels::LambNorms run_update(OptimizerOptions const& options, double lr, std::int64_t step,
                              kernels::UpdateArrays const& arrays, std::size_t count, kernels::GradientUse const& use);
/// The rest of the step for an optimizer that needs_norms(); `norms` are the whole tensor's.
void run_apply(OptimizerOptions const& options, double lr, std::int64_t step, kernels::UpdateArrays const& arrays,
               std::size_t count, kernels::LambNorms const& norms);

}  // namespace weft
