#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "weft/plan_executor.hpp"

namespace weft::test {

/// A training step small enough to be done again without the library: layers whose gradients are averaged over ranks.
/// Whoever runs out of order, or reads what is not there yet, gets other weights.
class SmallStep {
 public:
  SmallStep(int rank, int ranks, std::vector<std::size_t> sizes)
      : rank_(rank), ranks_(ranks), sizes_(std::move(sizes)) {
    for (std::size_t const size : sizes_) weights.emplace_back(size, 1.0F);
    build();
  }

  /// Set before the first step.
  PlanExecutor* executor = nullptr;
  OpGraph graph;
  std::vector<OpBinding> bindings;
  std::vector<OpId> gradients;  ///< the all_reduce of each layer
  std::vector<std::vector<float>> weights;
  std::vector<OpId> ran;  ///< callbacks in the order of their calls, of the last step

  void step() {
    ran.clear();
    executor->step();
    ++step_;
  }

  /// What a rank's backward adds: whole numbers, exact in f32.
  static float noise(int rank, int step, std::size_t layer, std::size_t i) {
    auto const mixed =
        (static_cast<std::size_t>(rank) * 7919 + static_cast<std::size_t>(step) * 104729 + layer * 31 + i) % 17;
    return static_cast<float>(mixed) - 8;
  }

  /// The weights after `steps`, by one thread in f64.
  [[nodiscard]] std::vector<std::vector<double>> reference(int steps) const {
    std::vector<std::vector<double>> w;
    for (std::size_t const size : sizes_) w.emplace_back(size, 1.0);
    for (int step = 0; step < steps; ++step) {
      auto const input = activation(w);
      for (std::size_t layer = 0; layer < w.size(); ++layer) {
        for (std::size_t i = 0; i < w[layer].size(); ++i) {
          double sum = 0;
          for (int rank = 0; rank < ranks_; ++rank) sum += noise(rank, step, layer, i) + input[layer];
          w[layer][i] -= 0.01 * sum / ranks_;
        }
      }
    }
    return w;
  }

 private:
  template <typename Weights>
  static std::vector<double> activation(Weights const& w) {
    std::vector<double> values;
    double value = 0;
    for (auto const& layer : w) {
      value = 0.5 * value + static_cast<double>(layer.front());
      values.push_back(value);
    }
    return values;
  }

  void build() {
    graph.name = "small step";
    std::vector<std::vector<int>> everybody(1);
    for (int rank = 0; rank < ranks_; ++rank) everybody[0].push_back(rank);
    GroupId const all = graph.add(OpGroup{"data", everybody});
    auto const count = sizes_.size();
    activations_.resize(count);
    gradients.resize(count);
    std::vector<TensorId> weight, saved, reduced(count);
    for (std::size_t l = 0; l < count; ++l) {
      weight.push_back(graph.add(OpTensor{.name = "w" + std::to_string(l), .bytes = bytes(l), .kept = true}));
    }
    for (std::size_t l = 0; l < count; ++l) {
      TensorId const out = graph.add(OpTensor{.name = "a" + std::to_string(l), .bytes = 64});
      std::vector<TensorId> reads{weight[l]};
      if (l > 0) reads.push_back(saved.back());
      compute("forward" + std::to_string(l), reads, {out},
              [this, l] { activations_[l] = (l > 0 ? 0.5F * activations_[l - 1] : 0.0F) + weights[l].front(); });
      saved.push_back(out);
    }
    TensorId chain = saved.back();
    for (std::size_t l = count; l-- > 0;) {
      TensorId const gradient = graph.add(OpTensor{.name = "g" + std::to_string(l), .bytes = bytes(l)});
      TensorId const next = graph.add(OpTensor{.name = "d" + std::to_string(l), .bytes = 64});
      compute("backward" + std::to_string(l), {weight[l], saved[l], chain}, {gradient, next},
              [this, l] { write_gradient(l); });
      chain = next;
      reduced[l] = graph.add(OpTensor{.name = "r" + std::to_string(l), .bytes = bytes(l), .alias_of = gradient});
      gradients[l] = graph.add(OpNode{.name = "reduce" + std::to_string(l),
                                      .kind = OpKind::collective,
                                      .collective = {CollectiveKind::all_reduce, bytes(l), all},
                                      .reads = {gradient},
                                      .writes = {reduced[l]}});
      bindings.push_back({.run = {}, .count = sizes_[l], .dtype = DataType::f32, .op = ReduceOp::avg});
    }
    for (std::size_t l = count; l-- > 0;) {
      TensorId const out = graph.add(
          OpTensor{.name = "new" + std::to_string(l), .bytes = bytes(l), .kept = true, .alias_of = weight[l]});
      OpId const op = compute("update" + std::to_string(l), {reduced[l]}, {out}, [this, l] { update(l); });
      graph.ops[static_cast<std::size_t>(op)].kind = OpKind::update;
      graph.ops[static_cast<std::size_t>(op)].after = {static_cast<OpId>(l), backward_of(l)};
    }
  }

  [[nodiscard]] std::int64_t bytes(std::size_t layer) const { return static_cast<std::int64_t>(sizes_[layer] * 4); }
  [[nodiscard]] OpId backward_of(std::size_t layer) const { return gradients[layer] - 1; }

  OpId compute(std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes,
               std::function<void()> body) {
    OpId const op = graph.add(OpNode{.name = std::move(name), .memory_bytes = 1e6, .reads = reads, .writes = writes});
    bindings.push_back({.run = [this, op, body = std::move(body)] {
      ran.push_back(op);
      body();
    }});
    return op;
  }

  void write_gradient(std::size_t layer) {
    auto* const g = static_cast<float*>(executor->buffer(gradients[layer]).data);
    for (std::size_t i = 0; i < sizes_[layer]; ++i) g[i] = noise(rank_, step_, layer, i) + activations_[layer];
  }
  void update(std::size_t layer) {
    auto const* const g = static_cast<float const*>(executor->buffer(gradients[layer]).data);
    for (std::size_t i = 0; i < sizes_[layer]; ++i) weights[layer][i] -= 0.01F * g[i];
  }

  int rank_;
  int ranks_;
  int step_ = 0;
  std::vector<std::size_t> sizes_;
  std::vector<float> activations_;
};

/// A slow link between ranks of one host, so that plans merge and overlap.
inline Cluster slow_cluster(int ranks) {
  return {.name = "slow",
          .ranks_per_host = ranks,
          .flops_per_s = 1e12,
          .memory_bytes_per_s = 1e9,
          .within = {1e8, 1e-4},
          .between = {1e8, 1e-4}};
}

}  // namespace weft::test
