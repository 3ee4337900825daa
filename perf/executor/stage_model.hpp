#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/weft.hpp"

namespace weft::perf {

/// Arithmetic that takes a given time on one core, without memory traffic.
class StageWork {
 public:
  /// Collective: finds how many turns take at least `seconds` on the fastest rank, undisturbed.
  StageWork(Communicator& world, double seconds);
  void run() noexcept;

 private:
  void turn() noexcept;

  std::size_t turns_ = 1;
  double state_ = 1;
};

/// A data-parallel step in the shape of a Transformer: a forward stage and two backward stages (feed-forward, then
/// attention) for each layer, an all_reduce for each weight, and an update of each stage's weights.
///
/// It really writes gradients and updates weights, so that wrong() can tell whether the ranks' averages arrived.
class StageModel {
 public:
  struct Shape {
    int layers = 6;
    std::size_t width = 640;
  };

  StageModel(Shape const& shape, int rank, int ranks, StageWork& work);
  StageModel(StageModel const&) = delete;
  StageModel& operator=(StageModel const&) = delete;

  [[nodiscard]] OpGraph const& graph() const noexcept { return graph_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }  ///< of all gradients
  [[nodiscard]] std::vector<OpBinding> const& bindings() const noexcept { return bindings_; }

  /// From now on callbacks write the buffers of `executor`.
  void use(PlanExecutor& executor) noexcept { executor_ = &executor; }
  /// How many of the checked elements (some of every weight) were not updated by the last step's average.
  [[nodiscard]] std::size_t wrong() const noexcept { return wrong_; }
  /// Call it before each step.
  void begin(int step) noexcept { step_ = step; }

 private:
  struct Weight {
    std::size_t count;
    OpId reduce;
    std::vector<float> values;
  };

  TensorId add_tensor(std::string name, std::int64_t bytes, bool kept = false, TensorId alias = kNone);
  OpId add_compute(OpNode node, std::function<void()> run);
  void add_forward(int layer);
  void add_backward(int layer, char const* part, std::vector<std::size_t> const& counts);
  void add_updates();
  void write_gradients(std::size_t first, std::size_t last);
  void update(std::size_t first, std::size_t last);

  /// The gradient of rank `rank`: whole numbers, so that averages of two ranks are exact.
  [[nodiscard]] float gradient(int rank, std::size_t weight) const noexcept {
    return static_cast<float>(static_cast<int>(weight) % 5 + 2 * rank + step_ % 3);
  }

  int rank_;
  int ranks_;
  int step_ = 0;
  StageWork& work_;
  PlanExecutor* executor_ = nullptr;
  OpGraph graph_;
  std::vector<OpBinding> bindings_;
  GroupId everybody_ = kNone;
  TensorId chain_ = kNone;  ///< the output of the last stage
  std::vector<Weight> weights_;
  struct Stage {
    std::size_t first;  ///< weights [first, last)
    std::size_t last;
    OpId op;
    std::vector<TensorId> reduced;
  };
  std::vector<Stage> stages_;
  std::vector<TensorId> forwards_;  ///< by layer
  std::int64_t bytes_ = 0;
  std::size_t wrong_ = 0;
};

}  // namespace weft::perf
