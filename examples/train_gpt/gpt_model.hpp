#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <weft/buffer.hpp>

#include "gpt_config.hpp"

namespace train_gpt {

/// Sequences to learn from, one after the other: targets[i] is the byte that follows inputs[i].
struct Batch {
  std::vector<std::uint8_t> inputs;
  std::vector<std::uint8_t> targets;
};

/// Activations kept between forward and backward. Models that never run at the same time may share one.
class Workspace;

/// Byte-level GPT: token and position embeddings, pre-norm blocks (causal attention, GELU MLP), final norm, untied
/// head.
///
/// Parameters are tensors in forward order; backward completes their gradients roughly in reverse. Not thread-safe;
/// matmuls run on the calling thread (see use_one_blas_thread()).
class GptModel {
 public:
  /// Where tensor `index` has its gradient: f32, as many elements as the parameter.
  using GradientView = std::function<weft::BufferView(std::size_t index)>;
  /// Called before tensor `index` is first read by a forward pass.
  using BeforeUse = std::function<void(std::size_t index)>;
  /// Called right after tensor `index`'s gradient is complete.
  using OnGradient = std::function<void(std::size_t index)>;

  struct BackwardOptions {
    bool accumulate = false;  ///< add to what the gradient views hold instead of replacing it
    float scale = 1.0F;       ///< multiplies the loss: 1/k when k passes accumulate
  };

  /// A model with zero parameters for up to `max_batch` sequences of config.seq bytes.
  GptModel(GptConfig const& config, int max_batch, std::shared_ptr<Workspace> workspace = nullptr);

  [[nodiscard]] static std::shared_ptr<Workspace> make_workspace(GptConfig const& config, int max_batch);

  /// GPT-2's: normal with deviation 0.02, residual projections smaller by √(2·layers), norms 1, biases 0.
  void initialise(std::uint64_t seed);

  /// Mean cross-entropy of `batch`, in nats per byte.
  [[nodiscard]] float forward(Batch const& batch, BeforeUse const& before_use = {});
  /// Gradients of the last forward()'s loss. Consumes its activations: call once per forward().
  void backward(Batch const& batch, GradientView const& gradient, OnGradient const& on_gradient,
                BackwardOptions const& options);
  void backward(Batch const& batch, GradientView const& gradient, OnGradient const& on_gradient) {
    backward(batch, gradient, on_gradient, {});
  }

  /// Scores of the byte that follows `text` (1 to config.seq bytes). Overwrites the activations.
  [[nodiscard]] std::span<float const> next_byte_logits(std::span<std::uint8_t const> text);

  [[nodiscard]] std::vector<weft::BufferView> const& parameters() const noexcept { return parameters_; }
  /// Computes with parameters in other memory from now on, which must outlive their use, and frees the model's own. As
  /// many tensors of the same sizes; their values are not touched.
  void use_parameters(std::vector<weft::BufferView> parameters);
  /// As "layer3.attention.qkv.weight", in the order of parameters().
  [[nodiscard]] std::vector<std::string> const& parameter_names() const noexcept { return names_; }
  [[nodiscard]] std::size_t parameter_count() const noexcept;  ///< elements in all tensors
  [[nodiscard]] GptConfig const& config() const noexcept { return config_; }

 private:
  struct Gradients;

  void add_parameter(std::string name, int count);
  [[nodiscard]] float* parameter(std::size_t index) const { return static_cast<float*>(parameters_[index].data); }
  void run_forward(std::span<std::uint8_t const> inputs, int seq, BeforeUse const& before_use);
  [[nodiscard]] float* used(std::size_t index, BeforeUse const& before_use) const {
    if (before_use) before_use(index);
    return parameter(index);
  }
  void block_forward(std::size_t layer, int rows, int seq, BeforeUse const& before_use);
  void mlp_backward(std::size_t layer, int rows, Gradients const& gradients);
  void attention_block_backward(std::size_t layer, int rows, int seq, Gradients const& gradients);

  GptConfig config_;
  int max_batch_;
  std::vector<weft::Buffer> memory_;  ///< the parameters' unless others have been given
  std::vector<weft::BufferView> parameters_;
  std::vector<std::string> names_;
  std::shared_ptr<Workspace> work_;
};

/// Keeps OpenBLAS on the calling thread: a rank has one core, and threads of its own would compete with the other
/// ranks.
void use_one_blas_thread();

}  // namespace train_gpt
