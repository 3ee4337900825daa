#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "sharding/shard_pieces.hpp"
#include "weft/optimizer.hpp"
#include "weft/stream.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft {

/// Knows which part of each parameter this rank owns and, once shards are fixed, holds the Optimizer of those parts.
/// Parameters are numbered over all groups. Not thread-safe.
class PieceOptimizer {
 public:
  /// Keeps only the sizes and options of `groups`. Errors begin with `who`.
  PieceOptimizer(char const* who, std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings);

  /// A PieceOptimizer of the same groups, with their present options and step count, whose shards are not fixed.
  [[nodiscard]] PieceOptimizer unfixed() const;

  /// For pieces on a GPU: `compute` is the stream that writes them.
  void use_device(std::optional<Stream> compute) { compute_ = std::move(compute); }
  /// Takes over which pieces rank `rank` of `ranks` owns under `plan`. Not once fixed.
  void use_plan(BucketPlan const& plan, int rank, int ranks);
  /// Fixes shards: they do not move from now on. Allocates states and takes masters from `parameters`, which are laid
  /// out by the plan and must stay where they are.
  void fix(BucketStorage const& parameters);
  /// The same for pieces that lie anywhere, with one view for each of pieces().
  void fix(std::span<BufferView const> pieces);
  [[nodiscard]] bool is_fixed() const noexcept { return optimizer_.has_value(); }

  [[nodiscard]] std::size_t parameter_count() const noexcept { return group_of_.size(); }
  /// In plan order; none is empty.
  [[nodiscard]] std::span<ShardPiece const> pieces() const noexcept { return pieces_; }
  /// The same, bucket by bucket.
  [[nodiscard]] std::span<std::span<ShardPiece const> const> by_bucket() const noexcept { return by_bucket_; }
  [[nodiscard]] ShardRange shard(std::size_t index) const noexcept { return shards_[index]; }
  /// What this rank owns of parameter `index`, within `part`, this rank's part of the parameter's bucket.
  [[nodiscard]] BufferView in_part(BufferView const& part, std::size_t index) const noexcept {
    return part.slice(offsets_[index], shards_[index].count);
  }
  [[nodiscard]] std::size_t bucket_of(std::size_t index) const noexcept { return bucket_of_[index]; }

  [[nodiscard]] std::size_t group_count() const noexcept { return options_.size(); }
  /// @throws Error{invalid_argument} for a bad group; so do set_lr() and set_options().
  [[nodiscard]] OptimizerOptions const& options(std::size_t group) const;
  [[nodiscard]] OptimizerOptions const& options_of(std::size_t index) const { return options_[group_of_[index]]; }
  void set_lr(std::size_t group, double lr);
  void set_options(std::size_t group, OptimizerOptions const& options);  ///< @throws as Optimizer's
  [[nodiscard]] std::int64_t step_count() const { return optimizer_ ? optimizer_->step_count() : first_step_; }
  void set_step_count(std::int64_t step);  ///< @throws Error{invalid_argument} for one below 0 or above 2^53
  /// Whether some tensor's step depends on norms of the whole tensor.
  [[nodiscard]] bool needs_norms() const noexcept;
  [[nodiscard]] OptimizerSettings const& settings() const noexcept { return settings_; }

  // The calls of a step, once shards are fixed. A `gradient` has the piece's elements. On a GPU the calls are enqueued
  // on the stream of use_device().
  void begin_step(StepInputs inputs) {
    if (compute_) inputs.stream = &*compute_;
    optimizer_->begin_step(inputs);
  }
  /// Of pieces that lie next to one another.
  void update(std::span<ShardPiece const> pieces, std::span<BufferView const> gradients);
  [[nodiscard]] Optimizer::Norms update_moments(ShardPiece const& piece, BufferView gradient) {
    return optimizer_->update_moments(index_of(piece), gradient);
  }
  void apply(ShardPiece const& piece, Optimizer::Norms const& whole) { optimizer_->apply(index_of(piece), whole); }
  /// The same for several pieces, without waiting for a GPU. `norms` is f64 there; those of a tensor begin at element
  /// 2·tensor.
  void update_moments(std::span<ShardPiece const> pieces, std::span<BufferView const> gradients, BufferView norms);
  void apply(std::span<ShardPiece const> pieces, BufferView norms);

  // What this rank keeps of a parameter, as f32; empty where it owns nothing of it. Once shards are fixed.
  // @throws Error{invalid_argument} naming `call` on a wrong count or state, and before shards are fixed.

  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) const;
  void set_state(char const* call, std::size_t index, std::size_t which, std::span<float const> values);
  /// The f32 master; where there is none, the parameter itself.
  [[nodiscard]] std::vector<float> master(std::size_t index) const;
  /// Sets the master, and rounds it into this rank's part of the parameter.
  void set_master(char const* call, std::size_t index, std::span<float const> values);
  [[nodiscard]] std::size_t state_bytes() const noexcept { return optimizer_ ? optimizer_->state_bytes() : 0; }

  /// @throws Error{invalid_argument} naming `call`.
  void check_fixed(char const* call, std::optional<std::size_t> index = {}) const;
  void check_state(char const* call, std::size_t index, std::size_t which) const;

 private:
  [[nodiscard]] std::size_t index_of(ShardPiece const& piece) const noexcept { return optimized_as_[piece.tensor]; }
  void note_places(std::span<ShardPiece const> pieces);
  void check_group(char const* call, std::size_t group) const;
  void check_count(char const* call, std::size_t index, std::size_t count) const;

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  char const* who_;
  OptimizerSettings settings_;
  std::vector<std::size_t> group_of_;  ///< by parameter
  std::vector<OptimizerOptions> options_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<ShardRange> shards_;      ///< by parameter
  std::vector<std::size_t> offsets_;    ///< by parameter: where its piece begins in this rank's part of the bucket
  std::vector<ShardPiece> pieces_;
  std::vector<std::span<ShardPiece const>> by_bucket_;  ///< into pieces_
  std::optional<Optimizer> optimizer_;                  ///< of the pieces; none before shards are fixed
  std::vector<std::size_t> optimized_as_;               ///< by parameter: its piece's index in optimizer_, or kNone
  std::optional<Stream> compute_;                       ///< on a GPU
  std::vector<std::size_t> indices_;                    ///< scratch memory of update(), like places_
  std::vector<std::size_t> places_;
  std::int64_t first_step_ = 0;
};

}  // namespace weft
