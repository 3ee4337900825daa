#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/error.hpp"
#include "weft/op_graph.hpp"
#include "weft/plan_executor.hpp"

namespace weft {

/// Fingerprints of all that ranks have to agree on before they run a step together.
struct PlanDigests {
  std::uint64_t options = 0;
  std::vector<std::uint64_t> operators{};  ///< by OpId: each with its edges, tensors, group and binding
  std::uint64_t plan = 0;
};

[[nodiscard]] PlanDigests digests_of(OpGraph const& graph, std::span<OpBinding const> bindings,
                                     PlanExecutorOptions const& options);
/// A digest of the launches in their order, without their times.
[[nodiscard]] std::uint64_t digest_of(Schedule const& plan);

/// Collective: checks that all ranks have the same digests. `mine` is null on ranks that cannot go on; these say why
/// themselves.
/// @throws Error{mismatch} on every other rank, naming the first rank that cannot go on; if all can, on all ranks,
/// naming the first rank that differs from rank 0, and in what
void check_alike(Communicator& world, OpGraph const& graph, PlanDigests const* mine);

/// Collective: `mine` if it is set; else an error that names the first rank that lacks memory; nothing where no rank
/// does.
[[nodiscard]] std::optional<Error> shortage_of_ranks(Communicator& world, OpGraph const& graph,
                                                     std::optional<Error> const& mine);

/// Collective: by index the median of the ranks' figures; with an even number of ranks the larger one of the middle
/// two.
[[nodiscard]] std::vector<double> medians_of_ranks(Communicator& world, std::span<double const> mine);

}  // namespace weft
