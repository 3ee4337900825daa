#include "scheduler/builders/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

Parameters::Parameters(StepGraph& step, TransformerShape const& shape, TransformerPlan const& plan,
                       MeshGroups const& groups, std::vector<Unit> units)
    : step_(step),
      shape_(shape),
      plan_(plan),
      groups_(groups),
      shards_(mesh_of(plan).shards),
      units_(std::move(units)) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    first_state_.push_back(states_.size());
    add_states(unit);
    add_bundles(unit);
  }
  first_state_.push_back(states_.size());
}

void Parameters::add_states(std::size_t unit) {
  for (auto const& weight : units_[unit].weights) {
    State state{.unit = unit, .weight = weight};
    state.shard_elements = (weight.elements + shards_ - 1) / shards_;
    auto const kept = gathers() ? state.shard_elements : weight.elements;
    state.parameter = step_.resident(name_of(state), kept * shape_.parameter_bytes);
    state.states = step_.resident(name_of(state) + ".states", state.shard_elements * shape_.state_bytes);
    states_.push_back(std::move(state));
  }
}

void Parameters::add_bundles(std::size_t unit) {
  for (std::size_t weight = first_state_[unit]; weight < states_.size(); ++weight) {
    if (!plan_.merged || weight == first_state_[unit]) {
      bundles_.push_back({.name = plan_.merged ? units_[unit].name : name_of(states_[weight])});
    }
    Bundle& bundle = bundles_.back();
    bundle.weights.push_back(weight);
    bundle.uses += static_cast<int>(states_[weight].weight.used_by.size());
    bundle.waits_for = bundle.uses;
    bundle_of_.push_back(bundles_.size() - 1);
  }
}

std::string Parameters::name_of(State const& state) const {
  return units_[state.unit].name + "." + state.weight.name;
}

std::vector<std::size_t> Parameters::weights_of(std::size_t unit, std::string const& used_by) const {
  std::vector<std::size_t> weights;
  for (std::size_t weight = first_state_[unit]; weight < first_state_[unit + 1]; ++weight) {
    auto const& users = states_[weight].weight.used_by;
    if (std::find(users.begin(), users.end(), used_by) != users.end()) weights.push_back(weight);
  }
  return weights;
}

void Parameters::open(std::size_t unit, int micro_batch, bool backward) {
  if (!gathers()) return;
  auto& whole = gathered_[{unit, micro_batch}];
  whole.clear();
  for (auto bundle = bundle_of_[first_state_[unit]]; bundle <= bundle_of_[first_state_[unit + 1] - 1]; ++bundle) {
    std::vector<TensorId> shards;
    std::vector<TensorId> gathered;
    char const* const what = backward ? "gather.again" : "gather";
    for (auto const weight : bundles_[bundle].weights) {
      State const& state = states_[weight];
      shards.push_back(state.parameter);
      gathered.push_back(
          step_.tensor(fmt::format("{}.{}", name_of(state), what), state.weight.elements * shape_.parameter_bytes));
    }
    whole.insert(whole.end(), gathered.begin(), gathered.end());
    step_.collective(fmt::format("{}.{}", bundles_[bundle].name, what), CollectiveKind::all_gather, groups_.shard,
                     std::move(shards), std::move(gathered));
  }
}

std::vector<TensorId> Parameters::read(std::size_t unit, std::string const& used_by, int micro_batch) const {
  std::vector<TensorId> tensors;
  for (auto const weight : weights_of(unit, used_by)) {
    tensors.push_back(gathers() ? gathered_.at({unit, micro_batch})[weight - first_state_[unit]]
                                : states_[weight].parameter);
  }
  return tensors;
}

std::int64_t Parameters::elements(std::size_t unit, std::string const& used_by) const {
  std::int64_t elements = 0;
  for (auto const weight : weights_of(unit, used_by)) elements += states_[weight].weight.elements;
  return elements;
}

void Parameters::add_gradients(std::size_t unit, std::string const& used_by, int micro_batch, double flops,
                               std::vector<TensorId> const& reads) {
  for (auto const weight : weights_of(unit, used_by)) {
    auto const& state = states_[weight];
    bool const shared = state.weight.used_by.size() > 1;
    auto const name = fmt::format("{}.{}.dw", shared ? used_by : units_[unit].name, state.weight.name);
    add_gradient(weight, name, flops * static_cast<double>(state.weight.elements), reads);
    Bundle& bundle = bundles_[bundle_of_[weight]];
    if (--bundle.waits_for > 0) continue;
    bundle.waits_for = bundle.uses;
    reduce(bundle, micro_batch);
  }
}

void Parameters::add_gradient(std::size_t weight, std::string const& name, double flops, std::vector<TensorId> reads) {
  State& state = states_[weight];
  auto const bytes = state.weight.elements * shape_.gradient_bytes;
  TensorId const before = state.gradient;
  if (before == kNone) {
    state.gradient = step_.tensor(name, bytes);
  } else {
    state.gradient = step_.inside(name, bytes, before);
    reads.push_back(before);
  }
  step_.compute(name, flops, std::move(reads), {state.gradient});
}

void Parameters::reduce(Bundle const& bundle, int micro_batch) {
  bool const last = micro_batch == plan_.micro_batches - 1;
  if (groups_.shard == kNone && groups_.replica == kNone) return;
  if (reduces_once() && !last) return;
  widen(bundle);
  if (groups_.shard != kNone) reduce_among_shards(bundle);
  if (!reduces_once()) accumulate(bundle, last);
  if (last && groups_.replica != kNone) reduce_among_replicas(bundle);
}

void Parameters::widen(Bundle const& bundle) {
  if (plan_.reduction_bytes == 0 || plan_.reduction_bytes == shape_.gradient_bytes) return;
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  for (auto const weight : bundle.weights) {
    State& state = states_[weight];
    reads.push_back(state.gradient);
    state.gradient = step_.tensor(name_of(state) + ".cast", state.weight.elements * plan_.reduction_bytes);
    writes.push_back(state.gradient);
  }
  step_.compute(bundle.name + ".cast", 0, std::move(reads), std::move(writes));
}

std::int64_t Parameters::reduced_bytes(State const& state) const {
  return state.shard_elements * (plan_.reduction_bytes > 0 ? plan_.reduction_bytes : shape_.gradient_bytes);
}

void Parameters::reduce_among_shards(Bundle const& bundle) {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  for (auto const weight : bundle.weights) {
    State& state = states_[weight];
    auto const name = name_of(state) + ".reduced";
    reads.push_back(state.gradient);
    state.gradient = reduces_once() ? step_.inside(name, reduced_bytes(state), state.gradient)
                                    : step_.tensor(name, reduced_bytes(state));
    writes.push_back(state.gradient);
  }
  step_.collective(bundle.name + ".reduce_scatter", CollectiveKind::reduce_scatter, groups_.shard, std::move(reads),
                   std::move(writes));
}

void Parameters::accumulate(Bundle const& bundle, bool last) {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  for (auto const weight : bundle.weights) {
    State& state = states_[weight];
    TensorId const sum = state.shard;
    if (sum == kNone) {
      state.shard = state.gradient;
    } else {
      reads.insert(reads.end(), {sum, state.gradient});
      state.shard = step_.inside(name_of(state) + ".sum", reduced_bytes(state), sum);
      writes.push_back(state.shard);
    }
    state.gradient = last ? state.shard : kNone;
  }
  if (!writes.empty()) step_.compute(bundle.name + ".accumulate", 0, std::move(reads), std::move(writes));
}

void Parameters::reduce_among_replicas(Bundle const& bundle) {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  for (auto const weight : bundle.weights) {
    State& state = states_[weight];
    reads.push_back(state.gradient);
    state.gradient = step_.inside(name_of(state) + ".averaged", step_.tensor(state.gradient).bytes, state.gradient);
    writes.push_back(state.gradient);
  }
  step_.collective(bundle.name + ".all_reduce", CollectiveKind::all_reduce, groups_.replica, std::move(reads),
                   std::move(writes));
}

void Parameters::finish() {
  auto const readers = parameter_readers();
  for (auto& state : states_) {
    if (!state.weight.at_both_ends) continue;
    step_.set_layer(units_[state.unit].layer);
    state.gradient = step_.all_reduce(name_of(state) + ".both_ends", groups_.ends, state.gradient);
  }
  TensorId const norm = plan_.clipping ? add_norm() : kNone;
  for (auto const& bundle : bundles_) {
    std::vector<TensorId> updated;
    for (auto const weight : bundle.weights) updated.push_back(update(states_[weight], norm, readers[weight]));
    if (groups_.shard != kNone && !gathers()) gather_updated(bundle, std::move(updated));
  }
}

TensorId Parameters::add_norm() {
  constexpr std::int64_t kBytes = sizeof(float);
  std::vector<TensorId> parts;
  for (auto const& bundle : bundles_) {
    std::vector<TensorId> gradients;
    for (auto const weight : bundle.weights) gradients.push_back(states_[weight].gradient);
    step_.set_layer(units_[states_[bundle.weights.front()].unit].layer);
    parts.push_back(step_.tensor(bundle.name + ".norm", kBytes));
    step_.compute(bundle.name + ".norm", 0, std::move(gradients), {parts.back()});
  }
  step_.set_layer(kNone);
  TensorId const norm = step_.tensor("norm", kBytes);
  step_.compute("norm", 0, std::move(parts), {norm});
  return step_.all_reduce("norm.all_reduce", groups_.norm, norm);
}

TensorId Parameters::update(State& state, TensorId norm, std::vector<OpId> const& readers) {
  step_.set_layer(units_[state.unit].layer);
  auto const name = name_of(state);
  auto const bytes = state.shard_elements * shape_.parameter_bytes;
  auto const state_bytes = step_.tensor(state.states).bytes;
  TensorId const updated = step_.inside(name + ".updated", bytes, state.parameter);
  TensorId const states = step_.inside(name + ".states.updated", state_bytes, state.states);
  std::vector<TensorId> reads = {state.gradient, state.states, state.parameter};
  if (norm != kNone) reads.push_back(norm);
  auto& op = step_.op(step_.compute(name + ".update", 0, std::move(reads), {updated, states}));
  op.kind = OpKind::update;
  // Even where parameter and gradient are whole, the update touches only this rank's shard of them.
  auto const gradient_bytes = std::min(step_.tensor(state.gradient).bytes, reduced_bytes(state));
  op.memory_bytes = static_cast<double>(2 * bytes + 2 * state_bytes + gradient_bytes);
  op.after = readers;
  for (TensorId const result : {updated, states}) step_.tensor(result).kept = true;
  return updated;
}

void Parameters::gather_updated(Bundle const& bundle, std::vector<TensorId> pieces) {
  std::vector<TensorId> whole;
  for (auto const weight : bundle.weights) {
    State const& state = states_[weight];
    whole.push_back(step_.inside(name_of(state) + ".gathered", step_.tensor(state.parameter).bytes, state.parameter));
    step_.tensor(whole.back()).kept = true;
  }
  step_.collective(bundle.name + ".gather", CollectiveKind::all_gather, groups_.shard, std::move(pieces),
                   std::move(whole));
}

std::vector<std::vector<OpId>> Parameters::parameter_readers() const {
  std::map<TensorId, std::size_t> weight_of;
  for (std::size_t weight = 0; weight < states_.size(); ++weight) weight_of[states_[weight].parameter] = weight;
  std::vector<std::vector<OpId>> readers(states_.size());
  auto const& ops = step_.graph().ops;
  for (std::size_t op = 0; op < ops.size(); ++op) {
    for (TensorId const tensor : ops[op].reads) {
      auto const found = weight_of.find(tensor);
      if (found == weight_of.end()) continue;
      auto& of = readers[found->second];
      // Operators that compute wait for one another in turn, so the last one is enough, unless something is computed
      // again.
      if (ops[op].kind == OpKind::compute && plan_.recompute.empty()) of.clear();
      of.push_back(static_cast<OpId>(op));
    }
  }
  return readers;
}

}  // namespace weft
