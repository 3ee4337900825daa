#include "scheduler/execute/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "scheduler/execute/digest.hpp"
#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

enum Field : std::size_t { kGoesOn, kOperators, kOptions, kAllOperators, kPlan, kFields };
using Summary = std::array<std::uint64_t, kFields>;

template <typename T>
std::vector<T> gather(Communicator& world, std::span<T const> mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(ConstBufferView(mine), BufferView(std::span<T>(all))).wait();
  return all;
}

std::uint64_t digest_of_operator(OpGraph const& graph, OpNode const& op, OpBinding const& binding) {
  Digest digest;
  digest.add(op.name).add(op.kind).add(op.flops).add(op.memory_bytes).add(op.seconds.value_or(-1));
  for (OpId const earlier : op.after) digest.add(earlier);
  for (auto const* tensors : {&op.reads, &op.writes}) {
    digest.add(tensors->size());
    for (TensorId const id : *tensors) {
      OpTensor const& tensor = graph.tensors[at(id)];
      digest.add(id).add(tensor.bytes).add(tensor.kept).add(tensor.alias_of).add(tensor.in_place_of);
    }
  }
  if (op.kind != OpKind::collective) return digest.value();
  digest.add(op.collective.kind).add(op.collective.bytes);
  for (auto const& set : graph.groups[at(op.collective.group)].sets) {
    digest.add(set.size());
    for (int const rank : set) digest.add(rank);
  }
  return digest.add(binding.count).add(binding.dtype).add(binding.op).add(binding.root).value();
}

/// Collective among all ranks: says which operator differs between `rank` and rank 0.
std::string first_difference(Communicator& world, OpGraph const& graph, PlanDigests const& mine, std::size_t rank) {
  auto const all = gather<std::uint64_t>(world, mine.operators);
  std::size_t const count = mine.operators.size();
  for (std::size_t op = 0; op < count; ++op) {
    if (all[op] == all[rank * count + op]) continue;
    return fmt::format("operator {} ({}) or what it is bound to", op, graph.ops[op].name);
  }
  return "the graph";
}

}  // namespace

PlanDigests digests_of(OpGraph const& graph, std::span<OpBinding const> bindings, PlanExecutorOptions const& options) {
  PlanDigests digests;
  Cluster const& c = options.cluster;
  digests.options = Digest()
                        .add(options.profile_steps)
                        .add(options.blocking)
                        .add(c.ranks_per_host)
                        .add(c.flops_per_s)
                        .add(c.memory_bytes_per_s)
                        .add(c.within.bytes_per_s)
                        .add(c.within.step_s)
                        .add(c.between.bytes_per_s)
                        .add(c.between.step_s)
                        .value();
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    digests.operators.push_back(digest_of_operator(graph, graph.ops[op], bindings[op]));
  }
  return digests;
}

std::uint64_t digest_of(Schedule const& plan) {
  Digest digest;
  for (Launch const& launch : plan.launches) {
    digest.add(launch.resource).add(launch.ops.size());
    for (OpId const op : launch.ops) digest.add(op);
  }
  return digest.value();
}

void check_alike(Communicator& world, OpGraph const& graph, PlanDigests const* mine) {
  Summary summary{};
  if (mine != nullptr) {
    Digest operators;
    for (auto const each : mine->operators) operators.add(each);
    summary = {1, mine->operators.size(), mine->options, operators.value(), mine->plan};
  }
  auto const all = gather<std::uint64_t>(world, summary);
  auto const field = [&](std::size_t rank, std::size_t which) { return all[rank * kFields + which]; };
  auto const ranks = static_cast<std::size_t>(world.size());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (field(rank, kGoesOn) != 0) continue;
    if (mine == nullptr) return;
    throw Error(ErrorCode::mismatch,
                fmt::format("plan executor: rank {} refused the step of graph {}: see what it says", rank, graph.name));
  }
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    auto const differs = [&](Field which) { return field(rank, which) != field(0, which); };
    std::string what;
    if (differs(kOperators)) {
      what = fmt::format("{} operators there, {} on rank 0", field(rank, kOperators), field(0, kOperators));
    } else if (differs(kAllOperators)) {
      what = first_difference(world, graph, *mine, rank);
    } else if (differs(kOptions)) {
      what = "profile_steps, blocking or the cluster";
    } else if (differs(kPlan)) {
      what = "the plan that it came to; planners must depend on nothing but their arguments";
    } else {
      continue;
    }
    throw Error(ErrorCode::mismatch, fmt::format("plan executor: rank {} differs from rank 0 in {}; all ranks have to "
                                                 "run the same plan of graph {}",
                                                 rank, what, graph.name));
  }
}

std::optional<Error> shortage_of_ranks(Communicator& world, OpGraph const& graph, std::optional<Error> const& mine) {
  std::uint64_t const lacks = mine ? 1 : 0;
  auto const all = gather<std::uint64_t>(world, std::span(&lacks, 1));
  auto const first = std::find(all.begin(), all.end(), 1);
  if (mine || first == all.end()) return mine;
  return Error(ErrorCode::out_of_memory,
               fmt::format("plan executor: rank {} has no memory for the collectives of graph {}: see what it says",
                           first - all.begin(), graph.name));
}

std::vector<double> medians_of_ranks(Communicator& world, std::span<double const> mine) {
  auto const all = gather<double>(world, mine);
  auto const ranks = static_cast<std::size_t>(world.size());
  std::vector<double> medians(mine.size());
  std::vector<double> of_ranks(ranks);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    for (std::size_t rank = 0; rank < ranks; ++rank) of_ranks[rank] = all[rank * mine.size() + i];
    auto const middle = of_ranks.begin() + static_cast<std::ptrdiff_t>(ranks / 2);
    std::nth_element(of_ranks.begin(), middle, of_ranks.end());
    medians[i] = *middle;
  }
  return medians;
}

}  // namespace weft
