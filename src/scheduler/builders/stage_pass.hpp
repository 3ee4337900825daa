#pragma once

#include <map>
#include <vector>

#include "scheduler/builders/layer_pass.hpp"

namespace weft {

/// Builds the way of all micro-batches through one pipeline stage, in 1F1B order; control edges say what may start
/// when.
class StagePass {
 public:
  /// The context has to outlive this.
  explicit StagePass(LayerContext const& context);

  void run();

 private:
  struct MicroBatch {
    std::vector<LayerPass> layers{};
    TensorId tokens = kNone;
    TensorId gradient = kNone;  ///< of the last operator in forward; of the first one after backward
    TensorId normed = kNone;    ///< what the head reads
    TensorId unnormed = kNone;  ///< what `normed` is the norm of
    OpId sent = kNone;
    OpId forward_end = kNone;
    OpId backward_end = kNone;
  };

  void forward(int index);
  void backward(int index);

  TensorId embed(MicroBatch& batch, int index);
  void backward_embed(MicroBatch const& batch, int index);
  void lose(MicroBatch& batch, int index, TensorId input);
  TensorId loss_gradient(TensorId logits, TensorId labels);
  TensorId backward_head(MicroBatch const& batch, int index);

  TensorId receive(char const* name, std::vector<OpId> const& after);
  OpId send(char const* name, TensorId tensor);

  [[nodiscard]] bool is_first() const { return context_.plan.stage == 0; }
  [[nodiscard]] bool is_last() const { return context_.plan.stage == context_.plan.pipeline_stages - 1; }
  /// How many micro-batches' activations are there at the same time.
  [[nodiscard]] int in_flight() const { return context_.plan.pipeline_stages - context_.plan.stage; }
  [[nodiscard]] std::size_t head() const { return context_.parameters.units().size() - 1; }
  /// The unit that has the head's matrix.
  [[nodiscard]] std::size_t table() const;
  /// The operator that ends a micro-batch's backward; nothing where there is no such micro-batch.
  [[nodiscard]] std::vector<OpId> backward_end(int index) const;
  void wait_for(OpId op, std::vector<OpId> const& earlier);

  LayerContext const& context_;
  StepGraph& step_;
  std::size_t first_layer_;
  std::size_t end_layer_;
  std::vector<MicroBatch> batches_;
};

}  // namespace weft
