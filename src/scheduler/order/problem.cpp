#include "scheduler/order/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scheduler/graph/at.hpp"
#include "scheduler/graph/dependencies.hpp"
#include "scheduler/graph/list_order.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

/// Finds which tensors share memory: aliases, and tensors that are written over others which nothing else reads.
std::vector<TensorId> shared_memory(OpGraph const& graph) {
  auto memory = memory_of(graph);
  std::vector<int> readers(graph.tensors.size(), 0);  // by memory: the operators that read anything in it
  for (auto const& op : graph.ops) {
    std::vector<TensorId> read;
    for (TensorId const tensor : op.reads) read.push_back(memory[at(tensor)]);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (TensorId const tensor : read) ++readers[at(tensor)];
  }
  std::vector<bool> kept(graph.tensors.size(), false);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].kept) kept[at(memory[i])] = true;
  }
  auto const writers = writers_of(graph);
  // Chains (x over y over z) are followed to their end below; one memory is written over by at most one operator.
  std::vector<TensorId> over(graph.tensors.size(), kNone);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    TensorId const target = graph.tensors[i].in_place_of;
    if (target == kNone) continue;
    TensorId const root = memory[at(target)];
    if (readers[at(root)] != 1 || kept[at(root)] || writers[at(root)] == kNone) continue;
    // The operator may write several tensors, only one of them over this.
    readers[at(root)] = 0;
    over[i] = root;
  }
  for (auto& root : memory) {
    // A circle takes a view that an operator writes before the memory in which it lies is written.
    std::size_t links = 0;
    for (; over[at(root)] != kNone && links <= memory.size(); ++links) root = memory[at(over[at(root)])];
    if (links > memory.size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("graph {}: tensor {} ({}) is written over itself, by a circle "
                              "of in_place_of and alias_of",
                              graph.name, root, graph.tensors[at(root)].name));
    }
  }
  return memory;
}

}  // namespace

Problem::Problem(OpGraph const& graph, CostModel const& model, std::vector<std::vector<OpId>> const& launches)
    : graph_(&graph), model_(&model) {
  make_tasks(launches);
  make_edges();
  make_order();
  make_storages();
}

void Problem::make_tasks(std::vector<std::vector<OpId>> const& launches) {
  std::vector<GroupPlacement> placements;
  for (auto const& group : graph_->groups) placements.push_back(model_->placement(group));
  task_of_.assign(graph_->ops.size(), kNone);
  std::vector<std::size_t> launch_of(graph_->ops.size(), launches.size());
  for (std::size_t i = 0; i < launches.size(); ++i) {
    for (OpId const op : launches[i]) launch_of[at(op)] = i;
  }
  for (std::size_t op = 0; op < graph_->ops.size(); ++op) {
    if (task_of_[op] != kNone) continue;
    Task task;
    task.ops = launch_of[op] < launches.size() ? launches[launch_of[op]] : std::vector<OpId>{static_cast<OpId>(op)};
    OpNode const& first = graph_->ops[at(task.ops.front())];
    if (first.kind == OpKind::collective) {
      GroupPlacement const& placement = placements[at(first.collective.group)];
      task.resource = model_->resource(first, placement);
      set_collective_seconds(task, placement);
    } else {
      task.resource = model_->resource(first, {});
      task.seconds = model_->operator_seconds(first);
    }
    for (OpId const each : task.ops) task_of_[at(each)] = static_cast<TaskId>(tasks_.size());
    tasks_.push_back(std::move(task));
  }
  check_times();
}

/// Makes sure that sums and products of times stay finite, and that small times still count beside large ones.
void Problem::check_times() const {
  constexpr double kMost = 1e18;
  double total = 0;
  for (Task const& task : tasks_) {
    total += task.seconds;
    if (total <= kMost) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("graph {}: operator {} takes {:.3g} s, with all before it {:.3g} s; plans of up to {:.0g} s can "
                    "be made",
                    graph_->name, graph_->ops[at(task.ops.front())].name, task.seconds, total, kMost));
  }
}

void Problem::set_collective_seconds(Task& task, GroupPlacement const& placement) const {
  std::int64_t bytes = 0;
  bool measured = false;
  double body = 0;     // of all: what each takes beyond its latency
  double latency = 0;  // the largest of any
  for (OpId const each : task.ops) {
    OpNode const& op = graph_->ops[at(each)];
    CollectiveCost const alone = model_->collective(op.collective.kind, op.collective.bytes, placement);
    double const seconds = op.seconds.value_or(alone.seconds());
    double const own_latency = std::min(alone.latency_s, seconds);
    measured = measured || op.seconds.has_value();
    bytes += op.collective.bytes;
    body += seconds - own_latency;
    latency = std::max(latency, own_latency);
  }
  CollectiveKind const kind = graph_->ops[at(task.ops.front())].collective.kind;
  task.seconds = measured ? body + latency : model_->collective(kind, bytes, placement).seconds();
  task.latency_s = measured ? latency : task.seconds - model_->least_transfer_s(kind, bytes, placement);
}

void Problem::make_edges() {
  Dependencies const dependencies(*graph_);
  for (std::size_t id = 0; id < tasks_.size(); ++id) {
    auto const begin = static_cast<std::ptrdiff_t>(before_.items.size());
    for (OpId const op : tasks_[id].ops) {
      for (OpId const earlier : dependencies.before(op)) before_.items.push_back(task_of(earlier));
    }
    std::sort(before_.items.begin() + begin, before_.items.end());
    before_.items.erase(std::unique(before_.items.begin() + begin, before_.items.end()), before_.items.end());
    before_.begin.push_back(before_.items.size());
  }
  after_ = turned(before_, tasks_.size());
}

Problem::Lists Problem::turned(Lists const& lists, std::size_t size) {
  Lists other;
  std::vector<std::size_t> counts(size, 0);
  for (auto const item : lists.items) ++counts[at(item)];
  for (auto const count : counts) other.begin.push_back(other.begin.back() + count);
  other.items.resize(lists.items.size());
  std::vector<std::size_t> next(other.begin.begin(), other.begin.end() - 1);
  for (std::size_t list = 0; list + 1 < lists.begin.size(); ++list) {
    for (auto const item : lists.of(static_cast<std::int32_t>(list))) {
      other.items[next[at(item)]++] = static_cast<std::int32_t>(list);
    }
  }
  return other;
}

void Problem::make_order() {
  order_ = list_order(*this, tasks_.size(), [](TaskId id) { return id; });
  if (order_.size() == tasks_.size()) return;
  std::vector<bool> placed(tasks_.size(), false);
  for (TaskId const id : order_) placed[at(id)] = true;
  auto const stuck = std::find(placed.begin(), placed.end(), false);
  auto const& ops = tasks_[static_cast<std::size_t>(stuck - placed.begin())].ops;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("graph {}: a cycle through operator {} ({}), of {} that are merged", graph_->name,
                          ops.front(), graph_->ops[at(ops.front())].name, ops.size()));
}

void Problem::make_storages() {
  auto const memory = shared_memory(*graph_);
  std::vector<std::int32_t> storage_at(graph_->tensors.size(), kNone);  // by the tensor in whose memory it lies
  auto const writers = writers_of(*graph_);
  for (std::size_t tensor = 0; tensor < memory.size(); ++tensor) {
    std::int32_t& id = storage_at[at(memory[tensor])];
    if (id == kNone) {
      id = static_cast<std::int32_t>(storages_.size());
      OpId const writer = writers[at(memory[tensor])];
      storages_.push_back({.first = writer == kNone ? kNone : task_of(writer)});
    }
    Storage& storage = storages_[at(id)];
    storage.bytes = std::max(storage.bytes, graph_->tensors[tensor].bytes);
    storage.kept = storage.kept || graph_->tensors[tensor].kept;
  }
  for (TensorId const root : memory) storage_of_.push_back(storage_at[at(root)]);
  for (std::size_t id = 0; id < tasks_.size(); ++id) {
    auto const begin = static_cast<std::ptrdiff_t>(uses_.items.size());
    for (OpId const op : tasks_[id].ops) {
      for (TensorId const tensor : graph_->ops[at(op)].reads) uses_.items.push_back(storage_of(tensor));
      for (TensorId const tensor : graph_->ops[at(op)].writes) uses_.items.push_back(storage_of(tensor));
    }
    std::sort(uses_.items.begin() + begin, uses_.items.end());
    uses_.items.erase(std::unique(uses_.items.begin() + begin, uses_.items.end()), uses_.items.end());
    uses_.begin.push_back(uses_.items.size());
    for (auto const storage : uses_.of(static_cast<TaskId>(id))) {
      storages_[at(storage)].users.push_back(static_cast<TaskId>(id));
    }
  }
  made_by_.assign(tasks_.size(), 0);
  for (auto const& storage : storages_) {
    if (storage.first != kNone) made_by_[at(storage.first)] += storage.bytes;
    if (storage.kept && storage.first == kNone) resident_bytes_ += storage.bytes;
  }
}

}  // namespace weft
