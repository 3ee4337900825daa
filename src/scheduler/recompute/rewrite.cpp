#include "scheduler/recompute/rewrite.hpp"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/serial_order.hpp"

namespace weft {

namespace {

/// Passes of just_in_time(); they are made where the peak is no more than kNear times the budget.
constexpr int kPasses = 4;
constexpr double kNear = 1.25;

/// A run: a first run has its operator's number, a second run that plus the number of operators.
using Item = std::int32_t;

class Rewriter {
 public:
  Rewriter(StepOrder const& step, Selection selection)
      : step_(step),
        graph_(step.graph()),
        selection_(std::move(selection)),
        ops_(static_cast<Item>(graph_.ops.size())),
        needed_at_(graph_.ops.size(), kNever),
        moved_(graph_.ops.size(), false),
        second_tensor_(graph_.tensors.size(), kNone) {}

  std::optional<Rewritten> run(std::int64_t budget) {
    settle();
    find_moved();
    add_tensors();
    make_nodes();
    if (!put_in_order()) return std::nullopt;
    measure(budget);
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool runs_again(OpId op) const { return op != kNone && needed_at_[at(op)] != kNever; }

  /// Finds where second runs are needed first, from the end back; repeats without those that cannot be, until all can.
  void settle() {
    bool changed = true;
    while (changed) {
      changed = false;
      for (auto op = step_.order().rbegin(); op != step_.order().rend(); ++op) needed_at_[at(*op)] = first_need(*op);
      for (OpId const op : step_.order()) {
        if (!runs_again(op) || can_read_again(op)) continue;
        selection_.again[at(op)] = false;
        changed = true;
      }
    }
  }

  [[nodiscard]] Place first_need(OpId op) const {
    if (!selection_[op]) return kNever;
    Place first = kNever;
    for (TensorId const tensor : graph_.ops[at(op)].writes) {
      for (OpId const reader : step_.readers(tensor)) {
        if (reads_late(step_, selection_.late_of(op), reader, tensor)) first = std::min(first, step_.place(reader));
        first = std::min(first, needed_at_[at(reader)]);
      }
    }
    return first;
  }

  [[nodiscard]] bool can_read_again(OpId op) const {
    auto const& reads = graph_.ops[at(op)].reads;
    return std::all_of(reads.begin(), reads.end(), [&](TensorId tensor) {
      OpId const next = step_.overwritten_by(tensor);
      return next == kNone || runs_again(step_.writer(tensor)) || step_.place(next) > needed_at_[at(op)] ||
             (step_.place(next) == needed_at_[at(op)] && next != op);
    });
  }

  /// Finds the first runs that are not needed: those whose readers all read the second run, which is then the only one.
  void find_moved() {
    for (OpId const op : step_.order()) {
      if (!runs_again(op) || step_.is_waited_for(op)) continue;
      auto const& writes = graph_.ops[at(op)].writes;
      moved_[at(op)] = std::all_of(writes.begin(), writes.end(), [&](TensorId tensor) {
        if (step_.is_kept(tensor) || step_.has_other_states(tensor)) return false;
        auto const& readers = step_.readers(tensor);
        return std::all_of(readers.begin(), readers.end(),
                           [&](OpId reader) { return reads_late(step_, selection_.late_of(op), reader, tensor); });
      });
    }
  }

  std::string again(std::string const& name, std::unordered_set<std::string> const& taken) const {
    std::string given = name + ".again";
    for (int i = 2; taken.count(given) > 0; ++i) given = name + ".again" + std::to_string(i);
    return given;
  }

  void add_tensors() {
    result_.graph.name = graph_.name;
    result_.graph.groups = graph_.groups;
    result_.graph.tensors = graph_.tensors;
    std::unordered_set<std::string> taken;
    for (OpTensor const& tensor : graph_.tensors) taken.insert(tensor.name);
    for (OpId const op : step_.order()) {
      if (!runs_again(op)) continue;
      for (TensorId const tensor : graph_.ops[at(op)].writes) {
        second_tensor_[at(tensor)] =
            moved_[at(op)] ? tensor
                           : result_.graph.add(OpTensor{.name = again(graph_.tensors[at(tensor)].name, taken),
                                                        .bytes = graph_.tensors[at(tensor)].bytes});
      }
    }
  }

  /// The tensor that a run reads in place of `tensor`; `need` is where the run stands.
  [[nodiscard]] TensorId read_by(Item item, TensorId tensor, Place need) const {
    OpId const writer = step_.writer(tensor);
    bool const second = item >= ops_;
    if (runs_again(writer)) {
      bool const late = second || reads_late(step_, selection_.late_of(writer), item, tensor);
      return late ? second_tensor_[at(tensor)] : tensor;
    }
    return second ? step_.nearest_equal(tensor, need) : tensor;
  }

  void make_nodes() {
    nodes_.resize(2 * graph_.ops.size());
    std::unordered_set<std::string> taken;
    for (OpNode const& op : graph_.ops) taken.insert(op.name);
    for (OpId const op : step_.order()) {
      OpNode const& node = graph_.ops[at(op)];
      if (!moved_[at(op)]) {
        nodes_[at(op)] = node;
        for (TensorId& tensor : nodes_[at(op)].reads) {
          TensorId const read = read_by(op, tensor, step_.place(op));
          if (read != tensor) replace_in_place(node, tensor, read, {});
          tensor = read;
        }
      }
      if (!runs_again(op)) continue;
      OpNode second = node;
      if (!moved_[at(op)]) {
        second.name = again(node.name, taken);
        result_.seconds += step_.seconds(op);
        result_.again.push_back(op);
      }
      second.writes.clear();
      for (TensorId const tensor : node.writes) second.writes.push_back(second_tensor_[at(tensor)]);
      for (TensorId& tensor : second.reads) {
        TensorId const read = read_by(op + ops_, tensor, needed_at_[at(op)]);
        replace_in_place(node, tensor, read, second.writes);
        tensor = read;
      }
      nodes_[at(op + ops_)] = std::move(second);
    }
    std::sort(result_.again.begin(), result_.again.end());
  }

  /// Sets what the run of `node` may write over, now that it reads another tensor. `writes`: its results in place of
  /// the node's own.
  void replace_in_place(OpNode const& node, TensorId old, TensorId read, std::vector<TensorId> const& writes) {
    for (std::size_t i = 0; i < node.writes.size(); ++i) {
      OpTensor const& first = graph_.tensors[at(node.writes[i])];
      bool const over = first.in_place_of == old || (!writes.empty() && first.alias_of == old);
      if (over) result_.graph.tensors[at(writes.empty() ? node.writes[i] : writes[i])].in_place_of = read;
    }
  }

  void find_writers() {
    writer_.assign(result_.graph.tensors.size(), kNone);
    for (std::size_t item = 0; item < nodes_.size(); ++item) {
      for (TensorId const tensor : nodes_[item].writes) writer_[at(tensor)] = static_cast<Item>(item);
    }
  }

  /// Lets what overwrites memory wait for second runs that read it.
  void order_overwriting() {
    for (OpId const op : step_.order()) {
      if (!runs_again(op)) continue;
      for (TensorId const tensor : nodes_[at(op + ops_)].reads) {
        if (at(tensor) >= graph_.tensors.size()) continue;
        OpId const next = step_.overwritten_by(tensor);
        if (next != kNone && next != op) overwriting_[at(next)].push_back(op + ops_);
      }
    }
  }

  bool put_in_order() {
    find_writers();
    overwriting_.resize(graph_.ops.size());
    order_overwriting();
    std::vector<std::vector<OpId>> second_at(graph_.ops.size());
    for (OpId const op : step_.order()) {
      if (runs_again(op)) second_at[at(needed_at_[at(op)])].push_back(op);
    }
    new_id_.assign(nodes_.size(), kNone);
    state_.assign(nodes_.size(), 0);
    for (std::size_t place = 0; place < step_.order().size(); ++place) {
      for (OpId const op : second_at[place]) {
        if (!emit(op + ops_, static_cast<Place>(place))) return false;
      }
      OpId const op = step_.order()[place];
      if (!moved_[at(op)] && !emit(op, static_cast<Place>(place))) return false;
    }
    return true;
  }

  [[nodiscard]] std::vector<Item> needs(Item item) const {
    std::vector<Item> all;
    for (TensorId const tensor : nodes_[at(item)].reads) {
      if (writer_[at(tensor)] != kNone) all.push_back(writer_[at(tensor)]);
    }
    for (OpId const op : nodes_[at(item)].after) all.push_back(op);
    if (item < ops_) {
      for (Item const second : overwriting_[at(item)]) all.push_back(second);
    }
    return all;
  }

  /// Emits a run after all that it needs, some of which (a gather) may stand later in the order. False where there is a
  /// cycle.
  bool emit(Item item, Place place) {
    std::vector<Item> open{item};
    while (!open.empty()) {
      Item const top = open.back();
      if (state_[at(top)] == 2) {
        open.pop_back();
        continue;
      }
      bool const visited = state_[at(top)] == 1;
      state_[at(top)] = 1;
      bool ready = true;
      for (Item const need : needs(top)) {
        if (state_[at(need)] == 2) continue;
        if (visited || state_[at(need)] == 1) return false;
        open.push_back(need);
        ready = false;
      }
      if (!ready) continue;
      state_[at(top)] = 2;
      open.pop_back();
      OpNode node = nodes_[at(top)];
      for (OpId& op : node.after) op = new_id_[at(op)];
      if (top < ops_) {
        for (Item const second : overwriting_[at(top)]) node.after.push_back(new_id_[at(second)]);
      }
      new_id_[at(top)] = result_.graph.add(std::move(node));
      result_.original.push_back(top % ops_);
      result_.second.push_back(top >= ops_);
      result_.base.push_back(place);
    }
    return true;
  }

  void measure(std::int64_t budget) {
    // The ids are in the order in which operators run.
    Problem const problem(result_.graph, step_.model());
    result_.live = live_bytes(problem, problem.order());
    set_peak();
    if (result_.peak_bytes <= budget || static_cast<double>(result_.peak_bytes) > kNear * static_cast<double>(budget))
      return;
    auto order = problem.order();
    auto limit = budget;
    for (int pass = 0; pass < kPasses; ++pass) {
      auto next = just_in_time(problem, order, limit);
      auto live = live_bytes(problem, next);
      auto const peak = *std::max_element(live.begin(), live.end());
      if (peak >= result_.peak_bytes) break;
      order = std::move(next);
      result_.live = std::move(live);
      set_peak();
      limit = peak - 1;
      if (peak <= budget) break;
    }
    if (order != problem.order()) renumber(order);
  }

  void set_peak() {
    auto const most = std::max_element(result_.live.begin(), result_.live.end());
    if (most == result_.live.end()) return;
    result_.peak_bytes = *most;
    result_.peak_at = static_cast<std::size_t>(most - result_.live.begin());
  }

  /// Gives operators the ids of their places.
  void renumber(std::vector<OpId> const& order) {
    std::vector<OpId> place(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<OpId>(i);
    Rewritten const old = std::move(result_);
    result_ = {.again = old.again,
               .seconds = old.seconds,
               .live = old.live,
               .peak_bytes = old.peak_bytes,
               .peak_at = old.peak_at};
    result_.graph = {.name = old.graph.name, .tensors = old.graph.tensors, .groups = old.graph.groups};
    for (OpId const op : order) {
      OpNode node = old.graph.ops[at(op)];
      for (OpId& earlier : node.after) earlier = place[at(earlier)];
      result_.graph.add(std::move(node));
      result_.original.push_back(old.original[at(op)]);
      result_.second.push_back(old.second[at(op)]);
      result_.base.push_back(old.base[at(op)]);
    }
  }

  StepOrder const& step_;
  OpGraph const& graph_;
  Selection selection_;
  Item ops_;
  std::vector<Place> needed_at_;                ///< by operator: where its second run is needed first
  std::vector<bool> moved_;                     ///< by operator: the second run is its only one
  std::vector<TensorId> second_tensor_;         ///< by tensor
  std::vector<OpNode> nodes_;                   ///< by item
  std::vector<Item> writer_;                    ///< by tensor of the result
  std::vector<std::vector<Item>> overwriting_;  ///< by operator: second runs that it has to wait for
  std::vector<OpId> new_id_;                    ///< by item
  std::vector<unsigned char> state_;            ///< by item: 1 open, 2 in the result
  Rewritten result_;
};

}  // namespace

std::optional<Rewritten> rewrite(StepOrder const& step, Selection selection, std::int64_t budget) {
  return Rewriter(step, std::move(selection)).run(budget);
}

}  // namespace weft
