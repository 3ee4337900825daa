#include "scheduler/recompute/step_order.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "scheduler/order/serial_order.hpp"

namespace weft {

std::vector<std::int64_t> live_bytes(Problem const& problem, std::vector<TaskId> const& order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = i;
  std::vector<std::int64_t> change(order.size() + 1, 0);
  for (auto const& storage : problem.storages()) {
    if (storage.users.empty() && !(storage.kept && storage.first == kNone)) continue;
    std::size_t const begin = storage.first == kNone ? 0 : place[static_cast<std::size_t>(storage.first)];
    std::size_t end = order.size();
    if (!storage.kept) {
      end = 0;
      for (TaskId const user : storage.users) end = std::max(end, place[static_cast<std::size_t>(user)] + 1);
    }
    change[begin] += storage.bytes;
    change[end] -= storage.bytes;
  }
  change.pop_back();
  std::int64_t live = 0;
  for (auto& each : change) each = live += each;
  return change;
}

StepOrder::StepOrder(OpGraph const& graph, CostModel const& model, RecomputeOptions const& options, Base base)
    : problem_(graph, model),
      // Nothing is merged: tasks are operators.
      order_(base == Base::ids ? problem_.order() : low_memory_order(problem_)),
      place_(graph.ops.size()),
      writers_(writers_of(graph)),
      readers_(graph.tensors.size()),
      memory_(memory_of(graph)),
      kept_(graph.tensors.size(), false),
      waited_for_(graph.ops.size(), false) {
  for (std::size_t i = 0; i < order_.size(); ++i) place_[at(order_[i])] = static_cast<Place>(i);
  for (OpNode const& op : graph.ops) {
    obstacles_.push_back(obstacle_to_repeating(op, options));
    for (OpId const earlier : op.after) waited_for_[at(earlier)] = true;
  }
  for (OpId const op : order_) {
    for (TensorId const tensor : graph.ops[at(op)].reads) {
      auto& readers = readers_[at(tensor)];
      if (readers.empty() || readers.back() != op) readers.push_back(op);
    }
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].kept) kept_[at(memory_[i])] = true;
  }
  live_ = live_bytes(problem_, order_);
  find_states();
  find_equal_gathers();
}

std::int64_t StepOrder::peak() const {
  return live_.empty() ? problem_.resident_bytes() : *std::max_element(live_.begin(), live_.end());
}

bool StepOrder::writes_into(OpId op, TensorId tensor) const {
  auto const& writes = graph().ops[at(op)].writes;
  return std::any_of(writes.begin(), writes.end(), [&](TensorId written) { return memory(written) == memory(tensor); });
}

void StepOrder::find_states() {
  std::vector<std::vector<TensorId>> by_memory(memory_.size());
  for (std::size_t i = 0; i < memory_.size(); ++i) by_memory[at(memory_[i])].push_back(static_cast<TensorId>(i));
  states_.assign(memory_.size(), 0);
  overwritten_by_.assign(memory_.size(), kNone);
  auto const since = [&](TensorId tensor) { return writer(tensor) == kNone ? Place{-1} : place(writer(tensor)); };
  for (std::size_t root = 0; root < by_memory.size(); ++root) {
    auto& states = by_memory[root];
    states_[root] = static_cast<int>(states.size());
    std::sort(states.begin(), states.end(), [&](TensorId a, TensorId b) { return since(a) < since(b); });
    for (std::size_t i = 0; i < states.size(); ++i) {
      auto const next = std::find_if(states.begin() + static_cast<std::ptrdiff_t>(i), states.end(),
                                     [&](TensorId other) { return since(other) > since(states[i]); });
      if (next != states.end()) overwritten_by_[at(states[i])] = writer(*next);
    }
  }
}

void StepOrder::find_equal_gathers() {
  using Key = std::tuple<GroupId, std::int64_t, std::size_t, std::vector<TensorId>>;  // of the n-th that it returns
  std::map<Key, std::vector<TensorId>> found;
  for (OpNode const& op : graph().ops) {
    if (op.kind != OpKind::collective || op.collective.kind != CollectiveKind::all_gather) continue;
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      if (has_other_states(op.writes[i])) continue;
      found[{op.collective.group, op.collective.bytes, i, op.reads}].push_back(op.writes[i]);
    }
  }
  equals_.assign(memory_.size(), kNone);
  for (auto& [key, tensors] : found) {
    if (tensors.size() < 2) continue;
    for (TensorId const tensor : tensors) equals_[at(tensor)] = static_cast<std::int32_t>(equal_.size());
    equal_.push_back(std::move(tensors));
  }
}

TensorId StepOrder::nearest_equal(TensorId tensor, Place place_wanted) const {
  if (equals_[at(tensor)] == kNone) return tensor;
  auto const distance = [&](TensorId each) {
    Place const begin = place(writer(each));
    Place const end = readers(each).empty() ? begin : place(readers(each).back());
    if (place_wanted < begin) return begin - place_wanted;
    return std::max(0, place_wanted - end);
  };
  auto const& all = equal_[at(equals_[at(tensor)])];
  return *std::min_element(all.begin(), all.end(), [&](TensorId a, TensorId b) { return distance(a) < distance(b); });
}

}  // namespace weft
