#include "weft/op_graph.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace weft {

namespace {

constexpr std::array<std::string_view, 4> kOpKinds = {"compute", "collective", "copy", "update"};
constexpr std::array<std::string_view, 6> kCollectiveKinds = {"all_reduce", "reduce_scatter", "all_gather",
                                                              "broadcast",  "all_to_all",     "permute"};

template <typename T>
std::int32_t append(std::vector<T>& to, T&& value) {
  to.push_back(std::move(value));
  return static_cast<std::int32_t>(to.size() - 1);
}

}  // namespace

std::string_view to_string(OpKind kind) noexcept {
  return kOpKinds[static_cast<std::size_t>(kind)];
}
std::string_view to_string(CollectiveKind kind) noexcept {
  return kCollectiveKinds[static_cast<std::size_t>(kind)];
}

OpId OpGraph::add(OpNode op) {
  return append(ops, std::move(op));
}
TensorId OpGraph::add(OpTensor tensor) {
  return append(tensors, std::move(tensor));
}
GroupId OpGraph::add(OpGroup group) {
  return append(groups, std::move(group));
}

std::vector<OpId> writers_of(OpGraph const& graph) {
  std::vector<OpId> writers(graph.tensors.size(), kNone);
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    for (TensorId const tensor : graph.ops[op].writes) {
      writers[static_cast<std::size_t>(tensor)] = static_cast<OpId>(op);
    }
  }
  return writers;
}

std::vector<TensorId> memory_of(OpGraph const& graph) {
  std::vector<TensorId> memory(graph.tensors.size(), kNone);
  std::vector<std::size_t> chain;
  for (std::size_t tensor = 0; tensor < memory.size(); ++tensor) {
    auto at = tensor;
    while (memory[at] == kNone && graph.tensors[at].alias_of != kNone) {
      chain.push_back(at);
      at = static_cast<std::size_t>(graph.tensors[at].alias_of);
    }
    if (memory[at] == kNone) memory[at] = static_cast<TensorId>(at);
    for (auto const link : chain) memory[link] = memory[at];
    chain.clear();
  }
  return memory;
}

}  // namespace weft
