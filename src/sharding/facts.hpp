#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"
#include "weft/gradients.hpp"
#include "weft/optimizer.hpp"
#include "weft/optimizer_options.hpp"

namespace weft {

/// Names of what ranks must agree on, and this rank's values.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Everything that `options` say, as text.
[[nodiscard]] std::string describe(OptimizerOptions const& options);

/// Of GradientPolicy::max_value.
[[nodiscard]] std::string describe(std::optional<float> const& limit);

// As in code.
[[nodiscard]] char const* name_of(NormType type) noexcept;
[[nodiscard]] char const* name_of(StateType type) noexcept;
[[nodiscard]] char const* name_of(UnusedGradients unused) noexcept;

/// Collective. Every rank passes as many facts, of the same names. On every rank, the first fact that differs from rank
/// 0's: "rank 1 differs from rank 0: NAME (rank 0: VALUE, rank 1: VALUE)"; none where all agree. `numbers`: what the
/// text calls each rank of the communicator; none: as the communicator does.
[[nodiscard]] std::optional<std::string> first_difference(Communicator& communicator, Facts const& facts,
                                                          std::vector<int> const& numbers = {});
/// The same of what an optimizer is built from. @throws Error{mismatch} where ranks differ; `who` begins the message.
void compare(Communicator& communicator, Facts const& facts, char const* who);

}  // namespace weft
