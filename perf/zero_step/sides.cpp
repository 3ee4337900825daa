#include "zero_step/sides.hpp"

#include <algorithm>

namespace weft::perf {

float initial_value(std::size_t index) {
  return static_cast<float>(index % 1021) * 1e-3F - 0.5F;
}

// Values of typical size, different in every step and cheap to compute.
void Side::write_gradients(int rank, std::size_t step) {
  std::size_t at = static_cast<std::size_t>(rank) * 7 + step * 13;
  for (BufferView const& view : gradients()) {
    auto* const data = static_cast<float*>(view.data);
    for (std::size_t i = 0; i < view.count; ++i)
      data[i] = static_cast<float>(static_cast<int>((at + i) & 511U) - 256) * 0.03125F;
    at += view.count;
  }
}

double Side::read_parameters() const {
  std::uint64_t sum = 0;
  for (BufferView const& view : parameters()) {
    auto const* const data = static_cast<std::uint16_t const*>(view.data);
    for (std::size_t i = 0; i < view.count; ++i) sum += data[i];
  }
  return static_cast<double>(sum);
}

FlatModel::FlatModel(Communicator& world, Workload const& workload)
    : gradients(world.allocate(workload.count(), DataType::f32)),
      parameters(world.allocate(workload.count(), DataType::bf16)),
      master(Buffer::host(workload.count() / static_cast<std::size_t>(world.size()), DataType::f32)),
      rank_(static_cast<std::size_t>(world.rank())) {
  std::span<float> const values = master.as<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = initial_value((rank_ * values.size() + i) % workload.tensor_count);
  convert(master.view(), parameter_shard());
  convert(parameter_shard(), master.view());  // rounds to bf16, as ZeroOptimizer starts from
  world.all_gather(parameter_shard(), parameters.view()).wait();
}

std::vector<float> FlatModel::whole_master(Communicator& world) const {
  std::vector<float> whole(parameters.count());
  std::span<float> const mine = master.as<float>();
  world.all_gather(std::span<float const>(mine), std::span<float>(whole)).wait();
  return whole;
}

namespace {

class FusedSide : public Side {
 public:
  FusedSide(Communicator& world, Workload const& workload)
      : scaler_({.init_scale = workload.loss_scale, .growth_interval = 1 << 30}),
        zero_(world, groups(workload), options(workload)) {
    first_ = {};
  }

  void phase() override {
    for (std::size_t i = zero_.parameter_count(); i-- > 0;) zero_.mark_ready(i);
    zero_.step();
    zero_.wait_parameters();
    scaler_.update();
  }

  [[nodiscard]] std::vector<float> masters() override {
    std::vector<float> all;
    for (std::size_t i = 0; i < zero_.parameter_count(); ++i) {
      std::vector<float> const one = zero_.master(i);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

 private:
  // Every tensor begins alike.
  std::vector<ParameterGroup> groups(Workload const& workload) {
    first_ = Buffer::host(workload.count(), DataType::bf16);
    std::vector<float> values(workload.tensor_count);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = initial_value(i);
    ParameterGroup group{{}, workload.adamw};
    for (std::size_t i = 0; i < workload.tensors; ++i) {
      group.parameters.push_back(first_.view().slice(i * workload.tensor_count, workload.tensor_count));
      convert(BufferView(values.data(), values.size(), DataType::f32), group.parameters.back());
    }
    return {std::move(group)};
  }
  ZeroOptions options(Workload const& workload) {
    ZeroOptions options{.stage = ZeroStage::optimizer_states};
    std::size_t const cap = workload.bucket_mib << 20U;
    options.buckets.limits = {cap, cap, cap};
    options.buckets.rebuild = false;
    options.optimizer.zero_gradients = true;
    options.gradients = {.scaler = &scaler_, .max_norm = workload.max_norm};
    options.gradient_dtype = DataType::f32;
    return options;
  }
  [[nodiscard]] std::vector<BufferView> gradients() const override {
    std::vector<BufferView> views;
    for (std::size_t i = 0; i < zero_.parameter_count(); ++i) views.push_back(zero_.gradient(i));
    return views;
  }
  [[nodiscard]] std::vector<BufferView> parameters() const override {
    std::vector<BufferView> views;
    for (std::size_t i = 0; i < zero_.parameter_count(); ++i) views.push_back(zero_.parameter(i));
    return views;
  }

  Buffer first_;  ///< what zero_ begins from
  GradScaler scaler_;
  ZeroOptimizer zero_;
};

class PassesSide : public Side {
 public:
  PassesSide(Communicator& world, Workload const& workload, std::shared_ptr<FlatModel> model)
      : world_(world),
        max_norm_(workload.max_norm),
        inv_scale_(1 / workload.loss_scale),
        model_(std::move(model)),
        optimizer_({model_->master.view()}, workload.adamw) {}

  void phase() override {
    parts_.clear();
    BufferView const gradients = model_->gradient_shard();
    std::span<BufferView const> const shards(&gradients, 1);
    float found = 0;
    GradientNorm norm;
    timed("reduce_scatter", [&] { world_.reduce_scatter(model_->gradients.view(), gradients, ReduceOp::avg).wait(); });
    timed("unscale and check", [&] {
      unscale_and_check(shards, inv_scale_, found);
      world_.all_reduce(std::span<float const>(&found, 1), std::span<float>(&found, 1), ReduceOp::max).wait();
    });
    timed("norm, clip", [&] { norm = clip_grad_norm(world_, shards, max_norm_); });
    timed("AdamW", [&] { optimizer_.step(shards, {.found_inf = &found}); });
    timed("cast", [&] { convert(model_->master.view(), model_->parameter_shard()); });
    timed("zero", [&] { std::fill_n(static_cast<float*>(model_->gradients.data()), model_->gradients.count(), 0.0F); });
    timed("all_gather", [&] { world_.all_gather(model_->parameter_shard(), model_->parameters.view()).wait(); });
  }

  [[nodiscard]] std::vector<float> masters() override { return model_->whole_master(world_); }

 private:
  [[nodiscard]] std::vector<BufferView> gradients() const override { return {model_->gradients.view()}; }
  [[nodiscard]] std::vector<BufferView> parameters() const override { return {model_->parameters.view()}; }

  Communicator& world_;
  double max_norm_;
  float inv_scale_;
  std::shared_ptr<FlatModel> model_;
  Optimizer optimizer_;
};

}  // namespace

std::unique_ptr<Side> fused_side(Communicator& world, Workload const& workload) {
  return std::make_unique<FusedSide>(world, workload);
}

std::unique_ptr<Side> passes_side(Communicator& world, Workload const& workload, std::shared_ptr<FlatModel> model) {
  return std::make_unique<PassesSide>(world, workload, std::move(model));
}

}  // namespace weft::perf
