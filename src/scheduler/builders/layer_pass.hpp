#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "scheduler/builders/parameters.hpp"

namespace weft {

/// A layer's operators, in the order of the forward pass.
enum class LayerOp : std::uint8_t {
  attn_norm,
  qkv,
  attention,
  projection,
  attn_residual,
  ffn_norm,
  up,
  activation,
  down,
  ffn_residual,
};
inline constexpr std::size_t kLayerOps = 10;

[[nodiscard]] std::string to_string(LayerOp op);

/// What all layers share.
struct LayerContext {
  StepGraph& step;
  Parameters& parameters;
  TransformerShape const& shape;
  TransformerPlan const& plan;
  MeshGroups const& groups;

  [[nodiscard]] std::int64_t tokens() const { return shape.sequence * shape.micro_batch; }
  /// Bytes of an activation of so many elements for each token.
  [[nodiscard]] std::int64_t activation(std::int64_t elements) const {
    return tokens() * elements * shape.activation_bytes;
  }
};

/// One micro-batch's way through one layer, forward and then backward.
class LayerPass {
 public:
  LayerPass(LayerContext const& context, std::size_t unit, int micro_batch);

  /// @return what the layer makes of its input.
  TensorId forward(TensorId input);
  /// @param gradient of the layer's result; @return that of its input.
  TensorId backward(TensorId gradient);

 private:
  /// The result of an operator: kept since the forward pass, or computed again now.
  TensorId value(LayerOp op);
  TensorId compute(LayerOp op);
  TensorId norm(LayerOp op, TensorId input);
  TensorId product(LayerOp op, TensorId input, std::int64_t width);
  TensorId residual(LayerOp op, TensorId input, TensorId branch);
  TensorId attend(TensorId qkv);

  TensorId backward_product(LayerOp op, TensorId gradient, TensorId input, std::int64_t input_width);
  TensorId backward_norm(LayerOp op, TensorId gradient, TensorId input, TensorId skipped);
  TensorId backward_attention(TensorId gradient);
  TensorId backward_activation(TensorId gradient);

  [[nodiscard]] bool recomputes(LayerOp op) const;
  [[nodiscard]] std::string name(LayerOp op, std::string const& what = "") const;
  [[nodiscard]] std::vector<TensorId> with_weights(LayerOp op, std::vector<TensorId> reads) const;
  [[nodiscard]] double product_flops(LayerOp op) const;
  [[nodiscard]] double attention_flops() const;

  LayerContext const& context_;
  StepGraph& step_;
  std::size_t unit_;
  int micro_batch_;
  bool in_backward_ = false;
  TensorId input_ = kNone;
  std::array<TensorId, kLayerOps> values_{};
  TensorId scales_ = kNone;  ///< of attention's softmax, one for each head and token
};

}  // namespace weft
