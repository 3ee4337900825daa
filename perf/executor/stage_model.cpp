#include "executor/stage_model.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace weft::perf {

StageWork::StageWork(Communicator& world, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTrials = 20;
  std::vector<double> took;
  for (int trial = 0; trial < kTrials; ++trial) {
    auto const start = Clock::now();
    for (int i = 0; i < 100; ++i) turn();
    took.push_back(std::chrono::duration<double>(Clock::now() - start).count() / 100);
  }
  double quickest = *std::min_element(took.begin(), took.end());
  BufferView const one{&quickest, 1, DataType::f64};
  world.all_reduce(one, one, ReduceOp::min).wait();
  turns_ = static_cast<std::size_t>(std::ceil(seconds / quickest));
}

void StageWork::turn() noexcept {
  double x = state_;
  for (int i = 0; i < 10'000; ++i) x = x * 0.999999 + 1e-6;  // each waits for the one before
  state_ = x;
}

void StageWork::run() noexcept {
  for (std::size_t i = 0; i < turns_; ++i) turn();
}

StageModel::StageModel(Shape const& shape, int rank, int ranks, StageWork& work)
    : rank_(rank), ranks_(ranks), work_(work) {
  graph_.name = "stages";
  OpGroup group{"data", {{}}};
  for (int r = 0; r < ranks; ++r) group.sets[0].push_back(r);
  everybody_ = graph_.add(std::move(group));
  std::size_t const w = shape.width;
  for (int layer = 0; layer < shape.layers; ++layer) add_forward(layer);
  for (int layer = shape.layers; layer-- > 0;) {
    add_backward(layer, "mlp", {4 * w * w, w, 4 * w * w, 4 * w, w, w});
    add_backward(layer, "attention", {w * w, w, 3 * w * w, 3 * w, w, w});
  }
  add_updates();
}

TensorId StageModel::add_tensor(std::string name, std::int64_t bytes, bool kept, TensorId alias) {
  return graph_.add(OpTensor{.name = std::move(name), .bytes = bytes, .kept = kept, .alias_of = alias});
}

OpId StageModel::add_compute(OpNode node, std::function<void()> run) {
  bindings_.push_back({.run = std::move(run)});
  return graph_.add(std::move(node));
}

void StageModel::add_forward(int layer) {
  auto const name = "layer" + std::to_string(layer) + ".forward";
  TensorId const out = add_tensor(name, 1 << 20);
  OpNode node{.name = name, .flops = 1, .writes = {out}, .layer = layer};
  if (chain_ != kNone) node.reads = {chain_};
  add_compute(std::move(node), [this] { work_.run(); });
  forwards_.push_back(out);
  chain_ = out;
}

void StageModel::add_backward(int layer, char const* part, std::vector<std::size_t> const& counts) {
  auto const prefix = "layer" + std::to_string(layer) + "." + part;
  Stage stage{weights_.size(), weights_.size() + counts.size(), 0, {}};
  TensorId const next = add_tensor(prefix + ".input_gradient", 1 << 20);
  OpNode node{.name = prefix + ".backward",
              .flops = 2,
              .reads = {chain_, forwards_[static_cast<std::size_t>(layer)]},
              .writes = {next},
              .layer = layer};
  if (chain_ == forwards_[static_cast<std::size_t>(layer)]) node.reads.pop_back();
  std::vector<TensorId> gradients;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    gradients.push_back(add_tensor(prefix + ".gradient" + std::to_string(i), static_cast<std::int64_t>(4 * counts[i])));
    node.writes.push_back(gradients.back());
  }
  stage.op = add_compute(std::move(node), [this, stage] {
    work_.run();
    write_gradients(stage.first, stage.last);
  });
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto const bytes = static_cast<std::int64_t>(4 * counts[i]);
    auto const name = prefix + ".reduce" + std::to_string(i);
    stage.reduced.push_back(add_tensor(name, bytes, false, gradients[i]));
    OpId const reduce = graph_.add(OpNode{.name = name,
                                          .kind = OpKind::collective,
                                          .collective = {CollectiveKind::all_reduce, bytes, everybody_},
                                          .reads = {gradients[i]},
                                          .writes = {stage.reduced.back()},
                                          .layer = layer});
    bindings_.push_back({.run = {}, .count = counts[i], .dtype = DataType::f32, .op = ReduceOp::avg});
    weights_.push_back({counts[i], reduce, std::vector<float>(counts[i], 0.0F)});
    bytes_ += bytes;
  }
  chain_ = next;
  stages_.push_back(std::move(stage));
}

void StageModel::add_updates() {
  for (Stage const& stage : stages_) {
    OpNode const& backward = graph_.ops[static_cast<std::size_t>(stage.op)];
    TensorId const done = add_tensor(backward.name + ".weights", 64, true);
    add_compute({.name = backward.name + ".update",
                 .kind = OpKind::update,
                 .flops = 0.1,
                 .reads = stage.reduced,
                 .writes = {done},
                 .layer = backward.layer},
                [this, first = stage.first, last = stage.last] { update(first, last); });
  }
}

void StageModel::write_gradients(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    auto const view = executor_->buffer(weights_[i].reduce);
    std::fill_n(static_cast<float*>(view.data), view.count, gradient(rank_, i));
  }
}

void StageModel::update(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    auto const view = executor_->buffer(weights_[i].reduce);
    auto const* const from = static_cast<float const*>(view.data);
    float average = 0;
    for (int rank = 0; rank < ranks_; ++rank) average += gradient(rank, i);
    average /= static_cast<float>(ranks_);
    for (std::size_t j = 0; j < view.count; j += 997) wrong_ += std::abs(from[j] - average) > 1e-5F ? 1U : 0U;
    auto& values = weights_[i].values;
    for (std::size_t j = 0; j < view.count; ++j) values[j] -= 1e-3F * from[j];
  }
}

}  // namespace weft::perf
