#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft::test {

inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

/// Which operators have to end before each one starts, by all paths. For small graphs.
class Reachability {
 public:
  explicit Reachability(OpGraph const& graph) {
    auto const writers = writers_of(graph);
    before_.assign(graph.ops.size(), std::vector<bool>(graph.ops.size(), false));
    for (OpId const id : topological_order(graph)) {
      auto const& op = graph.ops[static_cast<std::size_t>(id)];
      for (OpId const earlier : op.after) follow(id, earlier);
      for (TensorId const tensor : op.reads) {
        OpId const writer = writers[static_cast<std::size_t>(tensor)];
        if (writer != kNone) follow(id, writer);
      }
    }
  }

  [[nodiscard]] bool before(OpId earlier, OpId later) const {
    return before_[static_cast<std::size_t>(later)][static_cast<std::size_t>(earlier)];
  }

 private:
  void follow(OpId later, OpId earlier) {
    auto& all = before_[static_cast<std::size_t>(later)];
    auto const& further = before_[static_cast<std::size_t>(earlier)];
    for (std::size_t op = 0; op < all.size(); ++op) all[op] = all[op] || further[op];
    all[static_cast<std::size_t>(earlier)] = true;
  }

  std::vector<std::vector<bool>> before_;
};

/// The most bytes that are live when operators run in the order of their ids, nothing in place but aliases: from the
/// beginning or what first writes a memory to what last uses it, or the end.
inline std::int64_t peak_in_order_of_ids(OpGraph const& graph) {
  auto const memory = memory_of(graph);
  auto const end = graph.ops.size();
  std::vector<std::size_t> first(graph.tensors.size(), 0);
  std::vector<std::size_t> last(graph.tensors.size(), 0);
  std::vector<bool> used(graph.tensors.size(), false);
  for (std::size_t op = 0; op < end; ++op) {
    for (bool const writes : {false, true}) {
      for (TensorId const tensor : writes ? graph.ops[op].writes : graph.ops[op].reads) {
        auto const root = static_cast<std::size_t>(memory[static_cast<std::size_t>(tensor)]);
        if (!used[root] && writes) first[root] = op;
        used[root] = true;
        last[root] = std::max(last[root], op + 1);
      }
    }
  }
  for (std::size_t tensor = 0; tensor < graph.tensors.size(); ++tensor) {
    if (graph.tensors[tensor].kept) last[static_cast<std::size_t>(memory[tensor])] = end;
  }
  std::vector<std::int64_t> change(end + 1, 0);
  for (std::size_t tensor = 0; tensor < graph.tensors.size(); ++tensor) {
    if (graph.tensors[tensor].alias_of != kNone) continue;
    change[first[tensor]] += graph.tensors[tensor].bytes;
    change[last[tensor]] -= graph.tensors[tensor].bytes;
  }
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (auto const each : change) peak = std::max(peak, live += each);
  return peak;
}

/// Two operators that could run at the same time although one writes into a memory that the other uses; "" where there
/// are none.
inline std::string unordered_use(OpGraph const& graph) {
  Reachability const reach(graph);
  auto const memory = memory_of(graph);
  std::map<TensorId, std::set<OpId>> users;
  std::map<TensorId, std::set<OpId>> writers;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    auto const root = [&](TensorId tensor) { return memory[static_cast<std::size_t>(tensor)]; };
    for (auto const tensor : graph.ops[op].reads) users[root(tensor)].insert(static_cast<OpId>(op));
    for (auto const tensor : graph.ops[op].writes) {
      users[root(tensor)].insert(static_cast<OpId>(op));
      writers[root(tensor)].insert(static_cast<OpId>(op));
    }
  }
  for (auto const& [root, of_root] : writers) {
    for (OpId const writer : of_root) {
      for (OpId const user : users[root]) {
        if (user == writer || reach.before(writer, user) || reach.before(user, writer)) continue;
        return graph.tensors[static_cast<std::size_t>(root)].name + ": " +
               graph.ops[static_cast<std::size_t>(writer)].name + ", " + graph.ops[static_cast<std::size_t>(user)].name;
      }
    }
  }
  return "";
}

}  // namespace weft::test
