#include "scheduler/builders/check_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "weft/error.hpp"

namespace weft {

namespace {

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostPasses = 1 << 20;
constexpr double kMostBytes = 0x1p60;

class TransformerCheck {
 public:
  TransformerCheck(TransformerShape const& shape, TransformerPlan const& plan) : shape_(shape), plan_(plan) {}

  void run() const {
    check_shape();
    check_ranks();
    check_step();
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("Transformer {}: {}", shape_.name, why));
  }
  void at_least(std::int64_t least, char const* field, std::int64_t value) const {
    if (value < least) refuse(fmt::format("{} is {}, and has to be at least {}", field, value, least));
  }
  void multiple(char const* field, std::int64_t value, char const* of, std::int64_t divisor) const {
    if (value % divisor != 0) refuse(fmt::format("{} is {}, no multiple of {} {}", field, value, of, divisor));
  }

  void check_shape() const {
    at_least(1, "layers", shape_.layers);
    at_least(1, "width", shape_.width);
    at_least(1, "heads", shape_.heads);
    at_least(1, "kv_heads", shape_.kv_heads);
    at_least(1, "ffn_width", shape_.ffn_width);
    at_least(1, "vocabulary", shape_.vocabulary);
    at_least(0, "positions", shape_.positions);
    at_least(1, "sequence", shape_.sequence);
    at_least(1, "micro_batch", shape_.micro_batch);
    at_least(1, "parameter_bytes", shape_.parameter_bytes);
    at_least(1, "activation_bytes", shape_.activation_bytes);
    at_least(1, "gradient_bytes", shape_.gradient_bytes);
    at_least(0, "state_bytes", shape_.state_bytes);
    multiple("width", shape_.width, "heads", shape_.heads);
    multiple("heads", shape_.heads, "kv_heads", shape_.kv_heads);
    if (shape_.positions > 0 && shape_.sequence > shape_.positions) {
      refuse(fmt::format("sequence is {}, more than the {} positions", shape_.sequence, shape_.positions));
    }
    // Computed in floating point, as products of the sizes that are refused here would overflow.
    auto const widest = std::max({3 * static_cast<double>(shape_.width), 2 * static_cast<double>(shape_.ffn_width),
                                  static_cast<double>(shape_.vocabulary)});
    auto const rows = std::max(static_cast<double>(shape_.sequence) * static_cast<double>(shape_.micro_batch),
                               static_cast<double>(std::max(shape_.width, shape_.positions)));
    auto const bytes = std::max({shape_.parameter_bytes, shape_.activation_bytes, shape_.gradient_bytes,
                                 shape_.state_bytes, plan_.reduction_bytes});
    if (widest * rows * bytes > kMostBytes) refuse(fmt::format("a tensor of {} bytes", widest * rows * bytes));
  }

  void check_ranks() const {
    at_least(1, "data_ranks", plan_.data_ranks);
    at_least(1, "tensor_ranks", plan_.tensor_ranks);
    at_least(1, "pipeline_stages", plan_.pipeline_stages);
    if (static_cast<double>(plan_.data_ranks) * plan_.tensor_ranks * plan_.pipeline_stages > kMostRanks) {
      refuse(fmt::format("{} data_ranks x {} tensor_ranks x {} pipeline_stages are more than {} ranks",
                         plan_.data_ranks, plan_.tensor_ranks, plan_.pipeline_stages, kMostRanks));
    }
    if (plan_.strategy == TrainingStrategy::hsdp) {
      if (plan_.shard_ranks == 0) {
        refuse(
            fmt::format("shard_ranks is 0: among how many of the {} data_ranks does hsdp shard? A divisor of them, "
                        "usually the ranks of a host",
                        plan_.data_ranks));
      }
      at_least(1, "shard_ranks", plan_.shard_ranks);
      multiple("data_ranks", plan_.data_ranks, "shard_ranks", plan_.shard_ranks);
    } else if (plan_.shard_ranks != 0) {
      refuse(
          fmt::format("shard_ranks is {}: it belongs to hsdp, not {}", plan_.shard_ranks, to_string(plan_.strategy)));
    }
    multiple("heads", shape_.heads, "tensor_ranks", plan_.tensor_ranks);
    multiple("kv_heads", shape_.kv_heads, "tensor_ranks", plan_.tensor_ranks);
    multiple("ffn_width", shape_.ffn_width, "tensor_ranks", plan_.tensor_ranks);
    if (plan_.pipeline_stages > shape_.layers) {
      refuse(fmt::format("pipeline_stages is {}, more than the {} layers", plan_.pipeline_stages, shape_.layers));
    }
    if (plan_.stage < 0 || plan_.stage >= plan_.pipeline_stages) {
      refuse(fmt::format("stage is {}, and there are {}", plan_.stage, plan_.pipeline_stages));
    }
  }

  void check_step() const {
    at_least(1, "micro_batches", plan_.micro_batches);
    at_least(0, "reduction_bytes", plan_.reduction_bytes);
    at_least(0, "layers_gathered_once", plan_.layers_gathered_once);
    auto const gathers = plan_.strategy == TrainingStrategy::zero3 || plan_.strategy == TrainingStrategy::hsdp;
    if (plan_.layers_gathered_once > 0 && !gathers) {
      refuse(fmt::format("layers_gathered_once is {}: it belongs to zero3 and hsdp, {} gathers no layers",
                         plan_.layers_gathered_once, to_string(plan_.strategy)));
    }
    if (static_cast<std::int64_t>(shape_.layers) * plan_.micro_batches > kMostPasses) {
      refuse(fmt::format("{} layers x {} micro_batches are more than {}", shape_.layers, plan_.micro_batches,
                         kMostPasses));
    }
    auto const known = recomputable_operators();
    for (auto const& name : plan_.recompute) {
      if (name != "layer" && std::find(known.begin(), known.end(), name) == known.end()) {
        refuse(fmt::format("recompute names \"{}\": there are layer, {}", name, fmt::join(known, ", ")));
      }
    }
  }

  TransformerShape const& shape_;
  TransformerPlan const& plan_;
};

}  // namespace

void check_transformer(TransformerShape const& shape, TransformerPlan const& plan) {
  TransformerCheck(shape, plan).run();
}

}  // namespace weft
