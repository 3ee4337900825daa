#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu/optim/block_state.hpp"
#include "kernels/cpu/optim/update.hpp"
#include "weft/optimizer_options.hpp"

namespace weft {

/// One thing an optimizer keeps of every element.
struct StateKind {
  std::string_view name;  ///< torch's
  kernels::StateCode code;
  float initial;
};

/// What `options` keep, in the order of kernels::UpdateArrays::state.
[[nodiscard]] std::span<std::string_view const> state_names(OptimizerOptions const& options) noexcept;
/// Of a group that goes on with other options. @throws Error{invalid_argument}, `call` first, where those make no
/// sense, or are of another optimizer or keep other states.
void check_change(std::string_view call, std::size_t group, OptimizerOptions const& current,
                  OptimizerOptions const& wanted);
[[nodiscard]] StateKind state_kind(OptimizerOptions const& options, std::size_t which) noexcept;

[[nodiscard]] bool maximizes(OptimizerOptions const& options) noexcept;
/// Whether a tensor's step depends on its norms.
[[nodiscard]] bool needs_norms(OptimizerOptions const& options) noexcept;

// Step `step` (from 1) of a range of one parameter, with `lr` instead of the options'.

/// All of it, but for an optimizer that needs_norms(): then the moments only, and returns the norms.
kernels::LambNorms run_update(OptimizerOptions const& options, double lr, std::int64_t step,
                              kernels::UpdateArrays const& arrays, std::size_t count, kernels::GradientUse const& use);
/// The rest for an optimizer that needs_norms(), those of the whole tensor.
void run_apply(OptimizerOptions const& options, double lr, std::int64_t step, kernels::UpdateArrays const& arrays,
               std::size_t count, kernels::LambNorms const& norms);

}  // namespace weft
