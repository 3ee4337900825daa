#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpt_config.hpp"
#include "gpt_parameters.hpp"
#include "tensors.hpp"

namespace train_gpt {

/// Sequences to learn from, one after the other: targets[i] is the byte that follows inputs[i].
struct Batch {
  std::vector<std::uint8_t> inputs;
  std::vector<std::uint8_t> targets;
};

/// Activations kept between forward and backward.
class Workspace;

/// Byte-level GPT: token and position embeddings, pre-norm blocks (causal attention, GELU MLP), final norm, untied
/// head. Computes; parameters and gradients are wherever the given Tensors have them.
///
/// Backward completes gradients roughly in the reverse of forward's order. Not thread-safe; matmuls run on the calling
/// thread (see use_one_blas_thread()).
class GptModel {
 public:
  struct Settings {
    int max_batch = 1;       ///< sequences of config.seq bytes that one pass takes
    bool recompute = false;  ///< see Workspace; results have the same bits
  };

  GptModel(GptConfig const& config, Settings const& settings);
  ~GptModel();
  GptModel(GptModel&&) noexcept;
  GptModel& operator=(GptModel&&) noexcept;

  /// Mean cross-entropy of `batch`, in nats per byte.
  [[nodiscard]] float forward(Batch const& batch, Tensors& tensors);
  /// Gradients of scale · the last forward()'s loss. Consumes its activations: call once per forward().
  void backward(Batch const& batch, Tensors& tensors, float scale = 1.0F);
  /// The same in parts, from 0 on: the head's, of each block its MLP's and its attention's, the embedding's.
  void backward_part(std::size_t part, Batch const& batch, Tensors& tensors, float scale = 1.0F);
  [[nodiscard]] std::size_t backward_parts() const noexcept;
  /// The part that completes tensor `index`'s gradient.
  [[nodiscard]] std::size_t backward_part_of(std::size_t index) const noexcept;

  /// Scores of the byte that follows `text` (1 to config.seq bytes). Overwrites the activations.
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text, Tensors& tensors);

  [[nodiscard]] GptParameters const& parameters() const noexcept { return parameters_; }
  [[nodiscard]] GptConfig const& config() const noexcept { return config_; }

 private:
  void run_forward(std::span<std::uint8_t const> inputs, int seq, Tensors& tensors);
  void attention_forward_part(std::size_t layer, int rows, int seq, Tensors& tensors);
  void mlp_forward_hidden(std::size_t layer, int rows, Tensors& tensors);
  void mlp_forward_output(std::size_t layer, int rows, Tensors& tensors);
  void head_backward(Batch const& batch, int rows, float scale, Tensors& tensors);
  void mlp_backward(std::size_t layer, int rows, Tensors& tensors);
  void attention_block_backward(std::size_t layer, int rows, int seq, Tensors& tensors);
  void embedding_backward(Batch const& batch, int rows, Tensors& tensors);

  GptConfig config_;
  Settings settings_;
  GptParameters parameters_;
  std::unique_ptr<Workspace> work_;
};

/// Keeps OpenBLAS on the calling thread: a rank has one core, and threads of its own would compete with the other
/// ranks.
void use_one_blas_thread();

}  // namespace train_gpt
