#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft::test {

/// The rules of docs/plan-file.md about what waits for what and what memory tensors share, written down again: nothing
/// of the planners is used.
class OrderReference {
 public:
  struct Memory {
    std::int64_t bytes = 0;
    int first = -1;  ///< operator; -1: there from the beginning
    bool kept = false;
    std::set<int> users{};
  };

  explicit OrderReference(OpGraph const& graph) : before_(graph.ops.size()) {
    std::map<int, int> writer;
    for (std::size_t op = 0; op < graph.ops.size(); ++op) {
      for (auto const tensor : graph.ops[op].writes) writer[tensor] = static_cast<int>(op);
    }
    for (std::size_t op = 0; op < graph.ops.size(); ++op) {
      for (auto const tensor : graph.ops[op].reads) {
        if (writer.count(tensor) != 0) before_[op].insert(writer[tensor]);
      }
      before_[op].insert(graph.ops[op].after.begin(), graph.ops[op].after.end());
    }
    find_memory(graph, writer);
  }

  [[nodiscard]] std::vector<std::set<int>> const& before() const { return before_; }
  [[nodiscard]] std::vector<Memory> const& memory() const { return memory_; }

  /// Bytes live while each operator of an order runs; none where the order is not legal.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> live(std::vector<OpId> const& order) const {
    std::map<int, int> place;
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (int const earlier : before_.at(static_cast<std::size_t>(order[i]))) {
        if (place.count(earlier) == 0) return std::nullopt;
      }
      if (!place.emplace(order[i], static_cast<int>(i)).second) return std::nullopt;
    }
    if (order.size() != before_.size()) return std::nullopt;
    std::vector<std::int64_t> live(order.size(), 0);
    for (auto const& memory : memory_) {
      int begin = memory.first < 0 ? 0 : place[memory.first];
      int end = memory.kept ? static_cast<int>(order.size()) : 0;
      for (int const user : memory.users) end = std::max(end, place[user] + 1);
      for (int i = begin; i < end; ++i) live[static_cast<std::size_t>(i)] += memory.bytes;
    }
    return live;
  }

  struct Best {
    std::int64_t peak = 0;                 ///< the least of all orders
    std::vector<std::int64_t> at_least{};  ///< by operator: the least that is live while it runs, in any order
  };

  /// By looking at every set of operators that can have run (of at most 64 operators); none where there are more than
  /// `most_sets` of one size.
  [[nodiscard]] std::optional<Best> best(std::size_t most_sets) const {
    Best best{.at_least = std::vector<std::int64_t>(before_.size(), INT64_MAX)};
    std::unordered_map<std::uint64_t, std::int64_t> reached{{0, 0}};
    for (std::size_t size = 0; size < before_.size(); ++size) {
      std::unordered_map<std::uint64_t, std::int64_t> next;
      for (auto const& [done, peak] : reached) {
        std::int64_t const before = live_after(done);
        for (std::size_t op = 0; op < before_.size(); ++op) {
          if (has(done, op) || !can_run(done, op)) continue;
          std::int64_t const now = before + made_by_[op];
          best.at_least[op] = std::min(best.at_least[op], now);
          auto const [entry, is_new] = next.try_emplace(done | bit(op), std::max(peak, now));
          if (!is_new) entry->second = std::min(entry->second, std::max(peak, now));
        }
      }
      if (next.size() > most_sets) return std::nullopt;
      reached = std::move(next);
    }
    best.peak = reached.begin()->second;
    return best;
  }

 private:
  static std::uint64_t bit(std::size_t op) { return std::uint64_t{1} << op; }
  static bool has(std::uint64_t set, std::size_t op) { return (set & bit(op)) != 0; }
  [[nodiscard]] bool can_run(std::uint64_t done, std::size_t op) const {
    return std::all_of(before_[op].begin(), before_[op].end(),
                       [&](int earlier) { return has(done, static_cast<std::size_t>(earlier)); });
  }
  [[nodiscard]] std::int64_t live_after(std::uint64_t done) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      bool const there = memory_[i].first < 0 || has(done, static_cast<std::size_t>(memory_[i].first));
      if (there && (memory_[i].kept || (users_[i] & ~done) != 0)) bytes += memory_[i].bytes;
    }
    return bytes;
  }

  void find_memory(OpGraph const& graph, std::map<int, int> const& writer) {
    auto const root = [&](TensorId tensor) {
      while (graph.tensors[static_cast<std::size_t>(tensor)].alias_of != kNone) {
        tensor = graph.tensors[static_cast<std::size_t>(tensor)].alias_of;
      }
      return tensor;
    };
    std::map<TensorId, std::set<int>> readers;
    std::set<TensorId> kept;
    for (std::size_t op = 0; op < graph.ops.size(); ++op) {
      for (auto const tensor : graph.ops[op].reads) readers[root(tensor)].insert(static_cast<int>(op));
    }
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      if (graph.tensors[i].kept) kept.insert(root(static_cast<TensorId>(i)));
    }
    std::map<TensorId, TensorId> over;
    std::set<TensorId> taken;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      if (graph.tensors[i].in_place_of == kNone) continue;
      TensorId const target = root(graph.tensors[i].in_place_of);
      if (readers[target].size() == 1 && kept.count(target) == 0 && writer.count(target) != 0 &&
          taken.insert(target).second) {
        over[static_cast<TensorId>(i)] = target;
      }
    }
    std::map<TensorId, Memory> found;
    auto const memory_of = [&](TensorId tensor) {
      TensorId memory = root(tensor);
      while (over.count(memory) != 0) memory = root(over[memory]);
      return memory;
    };
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      TensorId const id = memory_of(static_cast<TensorId>(i));
      Memory& memory = found[id];
      memory.bytes = std::max(memory.bytes, graph.tensors[i].bytes);
      memory.kept = memory.kept || graph.tensors[i].kept;
      memory.first = writer.count(id) != 0 ? writer.at(id) : -1;
    }
    for (std::size_t op = 0; op < graph.ops.size(); ++op) {
      for (auto const tensor : graph.ops[op].reads) found[memory_of(tensor)].users.insert(static_cast<int>(op));
      for (auto const tensor : graph.ops[op].writes) found[memory_of(tensor)].users.insert(static_cast<int>(op));
    }
    made_by_.assign(graph.ops.size(), 0);
    for (auto const& [id, memory] : found) {
      if (memory.users.empty() && !memory.kept) continue;
      memory_.push_back(memory);
      if (memory.first >= 0) made_by_[static_cast<std::size_t>(memory.first)] += memory.bytes;
      std::uint64_t users = 0;
      for (int const user : memory.users) users |= user < 64 ? bit(static_cast<std::size_t>(user)) : 0;
      users_.push_back(users);
    }
  }

  std::vector<std::set<int>> before_;
  std::vector<Memory> memory_;
  std::vector<std::uint64_t> users_;
  std::vector<std::int64_t> made_by_;
};

}  // namespace weft::test
