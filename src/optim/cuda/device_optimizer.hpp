#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cuda/optim/lamb_norms.hpp"
#include "kernels/cuda/optim/packed.hpp"
#include "kernels/cuda/optim/update.hpp"
#include "optim/cuda/device_state.hpp"
#include "optim/cuda/gradient_table.hpp"
#include "optim/cuda/rule_options.hpp"
#include "optim/cuda/tensor_list.hpp"
#include "optim/optimizer_impl.hpp"

namespace weft::cuda {

/// An optimizer whose tensors and states are in a machine's memory, and all its tables as well. A step launches one
/// block that computes the step's scalars, and one kernel for all tensors of one kind of optimizer.
template <typename Machine>
class DeviceOptimizer final : public Optimizer::Impl {
 public:
  /// States are in `memory` if it is given.
  DeviceOptimizer(Machine machine, std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings,
                  std::vector<ParameterMemory> const* memory = nullptr)
      : Impl(groups, settings, machine.device()),
        machine_(machine),
        states_(machine, settings.state == StateType::block8),
        gradients_(machine, parameter_count()) {
    MemoryScope const scope(MemoryKind::optimizer);
    if (memory != nullptr) {
      check_memory(*memory);
      states_.borrow(*memory);
    } else {
      auto const [layouts, bytes] = lay_out_all(settings);
      states_.allocate(layouts, bytes);
    }
    order_by_kind();
    plan_ = plan_chunks(counts_in_order());
    chunks_ = upload(machine_, plan_.chunks);
    tensors_ = upload(machine_, make_tensors());
    scalars_ = machine_.allocate(this->groups().size() * sizeof(kernels::cuda::GroupScalars));
    step_ = machine_.allocate(sizeof(std::int64_t));
    if (any_of_kind(kernels::cuda::RuleKind::lamb)) {
      chunk_norms_ = machine_.allocate(plan_.chunks.size() * sizeof(kernels::LambNorms));
      tensor_norms_ = machine_.allocate(parameter_count() * sizeof(kernels::LambNorms));
    }
    if (memory != nullptr) return;
    fill_states();
    refresh_masters();
  }

  [[nodiscard]] BufferView master(std::size_t index) const override {
    auto const whole = parameter(index);
    auto* const memory = states_.of(index).master;
    return memory == nullptr ? whole : BufferView(memory, whole.count, DataType::f32, whole.device);
  }
  void refresh_masters() override {
    std::vector<BufferView> from;
    std::vector<BufferView> to;
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      if (states_.of(i).master == nullptr) continue;
      from.push_back(parameter(i));
      to.push_back(master(i));
    }
    if (from.empty()) return;
    machine_.synchronize();  // whoever wrote the parameters may have used any stream
    TensorList<Machine> const list(machine_, from, {}, to);
    list.map(kernels::cuda::ScaleOp{}, nullptr, nullptr);
    machine_.synchronize();  // before the list is destroyed
  }
  [[nodiscard]] std::int64_t step_count() const override { return download<std::int64_t>(machine_, step_.data()); }
  void set_step_count(std::int64_t step) override { machine_.write(step_.data(), &step, sizeof step); }
  [[nodiscard]] std::int64_t const* step_memory() const noexcept override {
    return static_cast<std::int64_t const*>(step_.data());
  }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) const override {
    return states_.read(index, which, parameter(index).count, code(index, which));
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    states_.write(index, which, values, code(index, which));
  }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      std::size_t const count = parameter(i).count;
      std::size_t const states = state_names(options_of(i)).size();
      if (states_.of(i).master != nullptr) bytes += count * sizeof(float);
      std::size_t const blocks = (count + kernels::kStateBlock - 1) / kernels::kStateBlock;
      bytes += states * (states_.packs() ? count + blocks * sizeof(float) : count * sizeof(float));
    }
    return bytes;
  }

 protected:
  void begin(StepInputs const& inputs) override {
    stream_ = inputs.stream;
    kernels::cuda::BeginStepBody body;
    body.inputs = {inputs.lr, inputs.step, inputs.inv_scale, inputs.clip, inputs.found_inf};
    if (inputs.clip_value) body.limit = *inputs.clip_value;
    body.step = static_cast<std::int64_t*>(step_.data());
    std::size_t const count = groups().size();
    for (std::size_t first = 0; first == 0 || first < count; first += kernels::cuda::BeginStepBody::kThreads) {
      body.groups = static_cast<unsigned>(std::min<std::size_t>(kernels::cuda::BeginStepBody::kThreads, count - first));
      for (unsigned i = 0; i < body.groups; ++i) body.options[i] = rule_options(groups()[first + i]);
      body.counts = first + body.groups == count;
      body.scalars = static_cast<kernels::cuda::GroupScalars*>(scalars_.data()) + first;
      machine_.launch(body, 1, stream_);
    }
  }
  void update_one(std::size_t index, BufferView gradient) override {
    gradients_.set(position_[index], gradient, stream_);
    update_range(kinds_[index], position_[index], 1);
  }
  void update_some(std::span<std::size_t const> indices, std::span<BufferView const> gradients) override {
    each_run(indices, [&](Run const& run) {
      gradients_.set(run.position, gradients.subspan(run.first, run.count), stream_);
      update_range(run.kind, run.position, run.count);
    });
  }
  kernels::LambNorms moments_of_one(std::size_t index, BufferView gradient) override {
    gradients_.set(position_[index], gradient, stream_);
    moments(position_[index], 1);
    return download<kernels::LambNorms>(machine_, tensor_norms() + position_[index]);
  }
  void apply_to_one(std::size_t index, kernels::LambNorms const& norms) override {
    machine_.launch(kernels::cuda::SetNormsBody{norms, tensor_norms() + position_[index]}, 1, stream_);
    run<kernels::LambApplyRule>(position_[index], 1);
  }
  void moments_of_some(std::span<std::size_t const> indices, std::span<BufferView const> gradients,
                       PlacedNorms const& norms) override {
    each_run(indices, [&](Run const& run) {
      gradients_.set(run.position, gradients.subspan(run.first, run.count), stream_);
      if (run.kind != kernels::cuda::RuleKind::lamb) return update_range(run.kind, run.position, run.count);
      moments(run.position, run.count);
      move_norms(run, norms, false);
    });
  }
  void apply_to_some(std::span<std::size_t const> indices, PlacedNorms const& norms) override {
    each_run(indices, [&](Run const& run) {
      if (run.kind != kernels::cuda::RuleKind::lamb) return;
      move_norms(run, norms, true);
      this->template run<kernels::LambApplyRule>(run.position, run.count);
    });
  }
  void update_all(std::span<BufferView const> gradients) override {
    std::vector<BufferView>& in_order = in_order_;
    in_order.clear();
    for (std::size_t const index : order_) in_order.push_back(gradients[index]);
    gradients_.set(0, in_order, stream_);
    for (std::size_t first = 0; first < order_.size();) {
      auto const kind = kinds_[order_[first]];
      std::size_t last = first + 1;
      while (last < order_.size() && kinds_[order_[last]] == kind) ++last;
      update_range(kind, first, last - first);
      first = last;
    }
  }

 private:
  [[nodiscard]] std::pair<std::vector<StateLayout>, std::size_t> lay_out_all(OptimizerSettings const& settings) const {
    std::pair<std::vector<StateLayout>, std::size_t> all{{}, 0};
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      all.first.push_back(lay_out(parameter(i), options_of(i), settings, all.second));
    }
    return all;
  }

  /// Orders the tables so that parameters of one kind of optimizer lie side by side, and one launch takes them all.
  void order_by_kind() {
    for (std::size_t i = 0; i < parameter_count(); ++i) kinds_.push_back(rule_options(options_of(i)).kind);
    order_.resize(parameter_count());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, {}, [&](std::size_t index) { return kinds_[index]; });
    position_.resize(parameter_count());
    for (std::size_t position = 0; position < order_.size(); ++position) position_[order_[position]] = position;
    in_order_.reserve(parameter_count());
  }
  [[nodiscard]] std::vector<std::size_t> counts_in_order() const {
    std::vector<std::size_t> counts;
    for (std::size_t const index : order_) counts.push_back(parameter(index).count);
    return counts;
  }
  [[nodiscard]] bool any_of_kind(kernels::cuda::RuleKind kind) const {
    return std::ranges::find(kinds_, kind) != kinds_.end();
  }

  [[nodiscard]] std::vector<kernels::cuda::UpdateTensor> make_tensors() const {
    std::vector<kernels::cuda::UpdateTensor> tensors;
    for (std::size_t position = 0; position < order_.size(); ++position) {
      std::size_t const index = order_[position];
      auto const& places = states_.of(index);
      auto const whole = parameter(index);
      kernels::cuda::UpdateTensor tensor{};
      tensor.parameter = whole.data;
      tensor.parameter_type = whole.dtype;
      tensor.master = places.master;
      for (std::size_t which = 0; which < 3; ++which) {
        if (states_.packs()) {
          tensor.packed[which] = static_cast<std::uint8_t*>(places.values[which]);
          tensor.scales[which] = places.scales[which];
        } else {
          tensor.state[which] = static_cast<float*>(places.values[which]);
        }
      }
      tensor.group = static_cast<std::uint32_t>(group_of(index));
      tensor.index = static_cast<std::uint32_t>(index);
      tensor.first_chunk = static_cast<std::uint32_t>(plan_.of_tensor[position].first);
      tensor.chunks = static_cast<std::uint32_t>(plan_.of_tensor[position].count);
      tensors.push_back(tensor);
    }
    return tensors;
  }

  /// Fills the states that are not zero at first.
  void fill_states() {
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      for (std::size_t which = 0; which < state_names(options_of(i)).size(); ++which) {
        float const initial = state_kind(options_of(i), which).initial;
        if (states_.packs() || initial != 0) set_state(i, which, std::vector<float>(parameter(i).count, initial));
      }
    }
  }
  [[nodiscard]] kernels::StateCode code(std::size_t index, std::size_t which) const {
    return state_kind(options_of(index), which).code;
  }

  [[nodiscard]] kernels::LambNorms* tensor_norms() const {
    return static_cast<kernels::LambNorms*>(tensor_norms_.data());
  }
  [[nodiscard]] kernels::cuda::UpdateTable table(std::size_t first_chunk) const {
    return {static_cast<kernels::cuda::UpdateTensor const*>(tensors_.data()),
            gradients_.data(),
            static_cast<kernels::cuda::GroupScalars const*>(scalars_.data()),
            static_cast<kernels::cuda::Chunk const*>(chunks_.data()) + first_chunk,
            settings().zero_gradients,
            static_cast<kernels::LambNorms*>(chunk_norms_.data()),
            tensor_norms()};
  }

  /// Given parameters that are neighbours in the table and of one kind, from the `first` of the given ones on.
  struct Run {
    kernels::cuda::RuleKind kind;
    std::size_t first;
    std::size_t position;
    std::size_t count;
  };
  template <typename Body>
  void each_run(std::span<std::size_t const> indices, Body const& body) {
    for (std::size_t first = 0; first < indices.size();) {
      Run one{kinds_[indices[first]], first, position_[indices[first]], 1};
      auto const goes_on = [&](std::size_t index) {
        return position_[index] == one.position + one.count && kinds_[index] == one.kind;
      };
      while (first + one.count < indices.size() && goes_on(indices[first + one.count])) ++one.count;
      body(one);
      first += one.count;
    }
  }
  void move_norms(Run const& run, PlacedNorms const& norms, bool back) {
    using Body = kernels::cuda::MoveNormsBody;
    for (std::size_t done = 0; done < run.count; done += Body::kMost) {
      Body body;
      body.here = tensor_norms() + run.position + done;
      body.all = norms.all;
      body.back = back;
      body.count = static_cast<unsigned>(std::min<std::size_t>(Body::kMost, run.count - done));
      for (unsigned i = 0; i < body.count; ++i)
        body.places[i] = static_cast<std::uint32_t>(norms.places[run.first + done + i]);
      machine_.launch(body, 1, stream_);
    }
  }

  /// One kernel for tensors [first, first + count) of the table.
  template <typename Rule>
  void run(std::size_t first, std::size_t count) {
    if (count == 0) return;
    auto const& last = plan_.of_tensor[first + count - 1];
    std::size_t const first_chunk = plan_.of_tensor[first].first;
    std::size_t const chunks = last.first + last.count - first_chunk;
    if (states_.packs() && Rule::kStates > 0) {
      if constexpr (Rule::kStates > 0)
        machine_.launch(kernels::cuda::PackedUpdateBody<Rule>{table(first_chunk)}, chunks, stream_);
    } else {
      machine_.launch(kernels::cuda::UpdateBody<Rule>{table(first_chunk)}, chunks, stream_);
    }
  }
  void moments(std::size_t first, std::size_t count) {
    run<kernels::LambMomentsRule>(first, count);
    machine_.launch(kernels::cuda::TensorNormsBody{table(0), static_cast<std::uint32_t>(first)}, count, stream_);
  }
  void update_range(kernels::cuda::RuleKind kind, std::size_t first, std::size_t count) {
    switch (kind) {
      case kernels::cuda::RuleKind::adam: return run<kernels::AdamRule<false>>(first, count);
      case kernels::cuda::RuleKind::adam_amsgrad: return run<kernels::AdamRule<true>>(first, count);
      case kernels::cuda::RuleKind::sgd: return run<kernels::SgdRule<false>>(first, count);
      case kernels::cuda::RuleKind::sgd_momentum: return run<kernels::SgdRule<true>>(first, count);
      case kernels::cuda::RuleKind::lion: return run<kernels::LionRule>(first, count);
      case kernels::cuda::RuleKind::adagrad: return run<kernels::AdagradRule>(first, count);
      case kernels::cuda::RuleKind::lamb: moments(first, count); return run<kernels::LambApplyRule>(first, count);
    }
  }

  Machine machine_;
  DeviceStates<Machine> states_;
  GradientTable<Machine> gradients_;
  std::vector<kernels::cuda::RuleKind> kinds_;  // by parameter
  std::vector<std::size_t> order_, position_;   // table → parameter and back
  std::vector<BufferView> in_order_;            // scratch, so that steps allocate nothing
  ChunkPlan plan_;                              // by position
  Buffer chunks_, tensors_, scalars_, step_, chunk_norms_, tensor_norms_;
  Stream const* stream_ = nullptr;
};

}  // namespace weft::cuda
