#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include "weft/error.hpp"
#include "weft/op_graph.hpp"

namespace weft {

namespace {

class GraphCheck {
 public:
  explicit GraphCheck(OpGraph const& graph) : graph_(graph) {}

  void run() const {
    for (std::size_t i = 0; i < graph_.groups.size(); ++i) check_group(i);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) bytes = check_tensor(i, bytes);
    check_aliases();
    std::vector<OpId> writers(graph_.tensors.size(), kNone);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) check_op(i, writers);
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) check_in_place(i, writers[i]);
    check_users(topological_order(graph_), writers);
  }

 private:
  [[noreturn]] void refuse(char const* what, std::size_t index, std::string const& name, std::string const& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("graph {}: {} {}{}: {}", graph_.name, what, index,
                                                         name.empty() ? "" : fmt::format(" ({})", name), why));
  }
  [[noreturn]] void refuse_op(std::size_t index, std::string const& why) const {
    refuse("operator", index, graph_.ops[index].name, why);
  }
  [[noreturn]] void refuse_tensor(std::size_t index, std::string const& why) const {
    refuse("tensor", index, graph_.tensors[index].name, why);
  }

  static bool within(std::int32_t id, std::size_t size) { return id >= 0 && static_cast<std::size_t>(id) < size; }

  void check_group(std::size_t index) const {
    auto const& group = graph_.groups[index];
    std::unordered_set<int> met;
    for (auto const& set : group.sets) {
      if (set.empty()) refuse("group", index, group.name, "a set without ranks");
      if (set.size() != group.sets.front().size()) {
        refuse("group", index, group.name,
               fmt::format("sets of {} and of {} ranks", group.sets.front().size(), set.size()));
      }
      for (int const rank : set) {
        if (rank < 0) refuse("group", index, group.name, fmt::format("rank {}", rank));
        if (!met.insert(rank).second) refuse("group", index, group.name, fmt::format("rank {} is in it twice", rank));
      }
    }
  }

  /// `before`: the bytes of all earlier tensors. Returns them with this tensor's, so that sums of bytes cannot
  /// overflow.
  std::int64_t check_tensor(std::size_t index, std::int64_t before) const {
    constexpr std::int64_t kMost = std::int64_t{1} << 60;
    auto const& tensor = graph_.tensors[index];
    if (tensor.bytes < 0) refuse_tensor(index, fmt::format("{} bytes", tensor.bytes));
    if (tensor.bytes > kMost - before) {
      refuse_tensor(index, fmt::format("{} bytes; all tensors together may have {}", tensor.bytes, kMost));
    }
    for (TensorId const other : {tensor.alias_of, tensor.in_place_of}) {
      if (other == kNone) continue;
      if (!within(other, graph_.tensors.size())) refuse_tensor(index, fmt::format("there is no tensor {}", other));
      if (static_cast<std::size_t>(other) == index) refuse_tensor(index, "it lies in its own memory");
    }
    return before + tensor.bytes;
  }

  /// Follows each chain only once: a part that was found to end is not followed again.
  void check_aliases() const {
    enum class Met : unsigned char { no, on_this_chain, ends };
    std::vector<Met> met(graph_.tensors.size(), Met::no);
    std::vector<std::size_t> chain;
    for (std::size_t i = 0; i < met.size(); ++i) {
      auto at = i;
      while (met[at] == Met::no) {
        met[at] = Met::on_this_chain;
        chain.push_back(at);
        if (graph_.tensors[at].alias_of == kNone) break;
        auto const next = static_cast<std::size_t>(graph_.tensors[at].alias_of);
        if (met[next] == Met::on_this_chain) refuse_tensor(at, "its chain of alias_of is a circle");
        if (graph_.tensors[at].bytes > graph_.tensors[next].bytes) {
          refuse_tensor(at, fmt::format("{} bytes in the memory of tensor {}, which has {}", graph_.tensors[at].bytes,
                                        next, graph_.tensors[next].bytes));
        }
        at = next;
      }
      for (auto const link : chain) met[link] = Met::ends;
      chain.clear();
    }
  }

  /// Memory is there from the start of the operator that writes its root, so no operator may use it before that.
  void check_users(std::vector<OpId> const& order, std::vector<OpId> const& writers) const {
    auto const memory = memory_of(graph_);
    std::vector<bool> has_run(graph_.ops.size(), false);
    for (OpId const op : order) {
      auto const index = static_cast<std::size_t>(op);
      auto const check = [&](TensorId tensor) {
        TensorId const root = memory[static_cast<std::size_t>(tensor)];
        OpId const first = writers[static_cast<std::size_t>(root)];
        if (first == kNone || has_run[static_cast<std::size_t>(first)]) return;
        refuse_op(index, fmt::format("it uses tensor {} ({}) before operator {} ({}) has written tensor {}, in whose "
                                     "memory that lies",
                                     tensor, graph_.tensors[static_cast<std::size_t>(tensor)].name, first,
                                     graph_.ops[static_cast<std::size_t>(first)].name, root));
      };
      for (TensorId const tensor : graph_.ops[index].reads) check(tensor);
      has_run[index] = true;  // an operator that writes a tensor may also write parts of it
      for (TensorId const tensor : graph_.ops[index].writes) check(tensor);
    }
  }

  void check_number(std::size_t index, char const* what, double value) const {
    if (!std::isfinite(value) || value < 0) refuse_op(index, fmt::format("{} {}", value, what));
  }

  void check_op(std::size_t index, std::vector<OpId>& writers) const {
    auto const& op = graph_.ops[index];
    check_number(index, "flops", op.flops);
    check_number(index, "memory_bytes", op.memory_bytes);
    if (op.seconds) check_number(index, "seconds", *op.seconds);
    if (op.kind == OpKind::collective) check_collective(index);
    for (OpId const earlier : op.after) {
      if (!within(earlier, graph_.ops.size())) refuse_op(index, fmt::format("there is no operator {}", earlier));
    }
    for (TensorId const tensor : op.reads) check_operand(index, tensor);
    for (TensorId const tensor : op.writes) {
      check_operand(index, tensor);
      OpId& writer = writers[static_cast<std::size_t>(tensor)];
      if (writer != kNone) {
        refuse_op(index, fmt::format("tensor {} ({}) is written by operator {} ({}) already", tensor,
                                     graph_.tensors[static_cast<std::size_t>(tensor)].name, writer,
                                     graph_.ops[static_cast<std::size_t>(writer)].name));
      }
      writer = static_cast<OpId>(index);
    }
    for (TensorId const tensor : op.reads) {
      if (writers[static_cast<std::size_t>(tensor)] == static_cast<OpId>(index)) {
        refuse_op(index, fmt::format("it reads and writes tensor {} ({})", tensor,
                                     graph_.tensors[static_cast<std::size_t>(tensor)].name));
      }
    }
  }

  void check_operand(std::size_t index, TensorId tensor) const {
    if (!within(tensor, graph_.tensors.size())) refuse_op(index, fmt::format("there is no tensor {}", tensor));
  }

  void check_collective(std::size_t index) const {
    auto const& collective = graph_.ops[index].collective;
    constexpr std::int64_t kMost = std::int64_t{1} << 50;  // sums of thousands of these do not overflow
    if (collective.bytes < 0) refuse_op(index, fmt::format("{} bytes to send", collective.bytes));
    if (collective.bytes > kMost) {
      refuse_op(index, fmt::format("{} bytes to send; {} are the most", collective.bytes, kMost));
    }
    if (!within(collective.group, graph_.groups.size())) {
      refuse_op(index, fmt::format("there is no group {}", collective.group));
    }
    if (graph_.groups[static_cast<std::size_t>(collective.group)].sets.empty()) {
      refuse_op(index, "its group has no ranks");
    }
  }

  void check_in_place(std::size_t index, OpId writer) const {
    TensorId const over = graph_.tensors[index].in_place_of;
    if (over == kNone) return;
    bool read = false;
    if (writer != kNone) {
      for (TensorId const tensor : graph_.ops[static_cast<std::size_t>(writer)].reads) read |= tensor == over;
    }
    if (!read)
      refuse_tensor(index, fmt::format("written in place of tensor {}, which its operator does not read", over));
    if (graph_.tensors[index].alias_of != kNone) refuse_tensor(index, "both an alias and written in place");
  }

  OpGraph const& graph_;
};

}  // namespace

void check_graph(OpGraph const& graph) {
  GraphCheck(graph).run();
}

}  // namespace weft
