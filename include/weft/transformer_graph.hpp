#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft {

/// A decoder-only Transformer and the pieces of text it is trained on.
struct TransformerShape {
  std::string name{};
  int layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< of keys and values; as many as heads, or a divisor
  std::int64_t ffn_width = 0;
  bool gated_ffn = true;  ///< two matrices up (SwiGLU) rather than one
  bool biases = false;    ///< of every matrix product and norm
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;    ///< that are learned; 0: none (rotary)
  bool tied_embeddings = false;  ///< the head is the embedding's table
  std::int64_t sequence = 0;     ///< tokens
  std::int64_t micro_batch = 1;  ///< sequences that one rank computes at a time
  /// Bytes of an element. States: all that the optimizer keeps of a parameter (with Adam and 16-bit parameters: an f32
  /// copy and two moments).
  int parameter_bytes = 2;
  int activation_bytes = 2;
  int gradient_bytes = 2;
  int state_bytes = 12;
};

enum class TrainingStrategy : std::uint8_t {
  ddp,    ///< everything replicated, gradients all-reduced
  zero1,  ///< states sharded: gradients reduce-scattered, kept whole; updated parameters gathered
  zero2,  ///< gradients sharded too: reduced in every micro-batch
  zero3,  ///< parameters sharded too: gathered before use, in forward and again in backward
  hsdp,   ///< zero3 among shard_ranks, replicated among the others
};

/// "ddp", "zero1", ...
std::string_view to_string(TrainingStrategy strategy) noexcept;

/// How that is spread over ranks and done in one step. The mesh of ranks has tensor-parallel ranks innermost, then
/// those that shard, replicas, stages.
struct TransformerPlan {
  TrainingStrategy strategy = TrainingStrategy::ddp;
  int data_ranks = 1;       ///< all that compute different text
  int shard_ranks = 0;      ///< of hsdp: a divisor of data_ranks
  int tensor_ranks = 1;     ///< each has so much of heads, FFN and vocabulary
  int pipeline_stages = 1;  ///< each has so many of the layers, in 1F1B order (Narayanan et al., SC 2021)
  int stage = 0;            ///< whose graph it is
  int micro_batches = 1;    ///< of a step, whose gradients are accumulated
  /// Operators of a layer whose results are computed again in backward rather than kept, by the names in
  /// recomputable_operators(); "layer" stands for all of them.
  std::vector<std::string> recompute{};
  bool clipping = false;         ///< updates wait for the norm of all gradients
  bool merged = true;            ///< collectives of parameters and gradients: one for a layer rather than a tensor
  int reduction_bytes = 0;       ///< of an element, in the reduction of gradients; 0: gradient_bytes
  int layers_gathered_once = 0;  ///< of zero3 and hsdp: so many of the stage's last layers stay until backward
};

/// One rank's training step.
///
/// In the order of ids it is the step as a program without overlap runs it. Forward and backward of a layer are norms,
/// matrix products, attention (as one operator that keeps no scores) and residuals; in backward the gradients of
/// activations (".dx") and of weights (".dw") are operators of their own. Parallel along tensors, what a layer's halves
/// return is all-reduced, in forward and backward (Shoeybi et al., arXiv:1909.08053). A matrix product
/// counts 2 flops for each token and element of its weights, attention 4 x sequence x width for a token in forward, of
/// which causality spares half, and 2.5 times that in backward (Dao, arXiv:2307.08691); all others cost only the bytes
/// they touch. Shards are padded to equal sizes.
///
/// Collectives' results of gradients lie in their arguments' memory (ddp, zero1), or are shards of their own. What a
/// stage receives comes from others whose time the graph does not have: an operator receives at most one micro-batch
/// ahead, and a gradient once its activations were sent.
/// @throws Error{invalid_argument} naming the field: numbers below 1 (or 0), heads that are no multiple of kv_heads or
/// tensor_ranks, more than 2^20 ranks, more than 2^20 layers × micro-batches, tensors beyond 2^60 bytes.
[[nodiscard]] OpGraph transformer_graph(TransformerShape const& shape, TransformerPlan const& plan = {});

/// Of the whole model.
[[nodiscard]] std::int64_t parameter_count(TransformerShape const& shape);

/// "attn_norm", "qkv", ... in the order in which they run.
[[nodiscard]] std::vector<std::string> recomputable_operators();

/// "llama2-7b", "llama3-8b", "llama3-70b", "llama3-405b", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl", with
/// the sequence each was trained on.
/// @throws Error{invalid_argument} naming the others where there is none of that name.
[[nodiscard]] TransformerShape transformer_preset(std::string_view name);
[[nodiscard]] std::vector<std::string> transformer_preset_names();

}  // namespace weft
