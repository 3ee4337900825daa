#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/op_graph.hpp"
#include "weft/plan_executor.hpp"

namespace weft {

/// What ranks have to agree on before they run a step together.
struct PlanDigests {
  std::uint64_t options = 0;
  std::vector<std::uint64_t> operators{};  ///< by OpId: each with its edges, tensors, group and binding
  std::uint64_t plan = 0;
};

[[nodiscard]] PlanDigests digests_of(OpGraph const& graph, std::span<OpBinding const> bindings,
                                     PlanExecutorOptions const& options);
/// Of the launches, in their order; not of their times.
[[nodiscard]] std::uint64_t digest_of(Schedule const& plan);

/// Collective: `mine` null on ranks that cannot go on, which say `why` themselves.
/// @throws Error{mismatch} on every rank but those, naming the first rank that cannot go on, or else on all ranks the
/// first that differs from rank 0, and in what.
void check_alike(Communicator& world, OpGraph const& graph, PlanDigests const* mine);

/// Collective: by index the medians of the ranks' figures, of an even number of ranks the larger middle ones.
[[nodiscard]] std::vector<double> medians_of_ranks(Communicator& world, std::span<double const> mine);

}  // namespace weft
