#include "scheduler/execute/check_bindings.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "scheduler/graph/at.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

[[noreturn]] void refuse(ErrorCode code, std::string const& what) {
  throw Error(code, "plan executor: " + what);
}

void check_groups(OpGraph const& graph, std::span<Communicator* const> groups) {
  if (groups.size() != graph.groups.size()) {
    refuse(ErrorCode::invalid_argument, fmt::format("graph {} has {} groups, {} communicators were given", graph.name,
                                                    graph.groups.size(), groups.size()));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto const& sets = graph.groups[i].sets;
    auto const ranks = sets.empty() ? std::size_t{0} : sets.front().size();
    if (groups[i] != nullptr && static_cast<std::size_t>(groups[i]->size()) == ranks) continue;
    refuse(ErrorCode::invalid_argument,
           fmt::format("group {} ({}) has sets of {} ranks, its communicator {}", i, graph.groups[i].name, ranks,
                       groups[i] == nullptr ? 0 : groups[i]->size()));
  }
}

void check_collective(OpGraph const& graph, std::size_t op, OpBinding const& binding, Communicator const& group) {
  OpCollective const& collective = graph.ops[op].collective;
  auto const name = fmt::format("{} {} ({})", to_string(collective.kind), op, graph.ops[op].name);
  if (collective.kind == CollectiveKind::permute) {
    refuse(ErrorCode::unsupported, fmt::format("{}: permutes are not run so far", name));
  }
  if (binding.count == 0 && collective.bytes > 0) {
    refuse(ErrorCode::invalid_argument,
           fmt::format("{} has no buffer: set bindings[{}].count to the elements of its {} bytes", name, op,
                       collective.bytes));
  }
  if (!is_valid(binding.dtype) ||
      binding.count * size_of(binding.dtype) != static_cast<std::size_t>(collective.bytes)) {
    refuse(ErrorCode::invalid_argument, fmt::format("{} moves {} bytes, bindings[{}] has {} x {}", name,
                                                    collective.bytes, op, binding.count, to_string(binding.dtype)));
  }
  bool const reduces =
      collective.kind == CollectiveKind::all_reduce || collective.kind == CollectiveKind::reduce_scatter;
  bool const plain = binding.op != ReduceOp::premul_sum && binding.op != ReduceOp::user;
  if (reduces && (!plain || !supports(binding.dtype, binding.op))) {
    refuse(ErrorCode::invalid_argument, fmt::format("{}: {} cannot be reduced by {} in a plan", name,
                                                    to_string(binding.dtype), to_string(binding.op)));
  }
  bool const shared = collective.kind == CollectiveKind::reduce_scatter ||
                      collective.kind == CollectiveKind::all_gather || collective.kind == CollectiveKind::all_to_all;
  if (shared && binding.count % static_cast<std::size_t>(group.size()) != 0) {
    refuse(ErrorCode::invalid_argument,
           fmt::format("{}: {} ranks cannot share {} elements equally; pad them", name, group.size(), binding.count));
  }
  if (collective.kind == CollectiveKind::broadcast && (binding.root < 0 || binding.root >= group.size())) {
    refuse(ErrorCode::invalid_argument, fmt::format("{}: root {} of {} ranks", name, binding.root, group.size()));
  }
}

}  // namespace

void check_bindings(OpGraph const& graph, std::span<OpBinding const> bindings, std::span<Communicator* const> groups) {
  check_graph(graph);
  check_groups(graph, groups);
  if (bindings.size() != graph.ops.size()) {
    refuse(ErrorCode::invalid_argument, fmt::format("graph {} has {} operators, {} bindings were given", graph.name,
                                                    graph.ops.size(), bindings.size()));
  }
  for (std::size_t op = 0; op < bindings.size(); ++op) {
    OpNode const& node = graph.ops[op];
    if (node.kind == OpKind::collective) {
      check_collective(graph, op, bindings[op], *groups[at(node.collective.group)]);
    } else if (!bindings[op].run) {
      refuse(ErrorCode::invalid_argument,
             fmt::format("{} operator {} ({}) has no callback: set bindings[{}].run, to one that does nothing if there "
                         "is nothing to do",
                         to_string(node.kind), op, node.name, op));
    }
  }
}

}  // namespace weft
