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

/// Pairs of a name and a value: what ranks must agree on, and what this rank has.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// All of `options` as text.
[[nodiscard]] std::string describe(OptimizerOptions const& options);

/// GradientPolicy::max_value as text.
[[nodiscard]] std::string describe(std::optional<float> const& limit);

// The enumerators' names as in code.
[[nodiscard]] char const* name_of(NormType type) noexcept;
[[nodiscard]] char const* name_of(StateType type) noexcept;
[[nodiscard]] char const* name_of(UnusedGradients unused) noexcept;

/// Collective. Every rank passes as many facts, with the same names. Returns on every rank the first fact in which a
/// rank differs from rank 0, as "rank 1 differs from rank 0: NAME (rank 0: VALUE, rank 1: VALUE)"; nothing where all
/// agree. `numbers`: what the text calls each rank of the communicator; if empty, as the communicator does.
[[nodiscard]] std::optional<std::string> first_difference(Communicator& communicator, Facts const& facts,
                                                          std::vector<int> const& numbers = {});
/// The same for what an optimizer is built from. @throws Error{mismatch} where ranks differ; `who` begins the message.
void compare(Communicator& communicator, Facts const& facts, char const* who);

}  // namespace weft
