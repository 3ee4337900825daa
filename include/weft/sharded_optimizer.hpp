#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/event.hpp"
#include "weft/gradients.hpp"
#include "weft/optimizer_options.hpp"
#include "weft/overlap.hpp"

namespace weft {

/// Elements [first, first + count) of a tensor.
struct ShardRange {
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(ShardRange const&, ShardRange const&) = default;
};

/// What ZeroOptimizer and FullySharded have in common: of each parameter this rank owns a part, and keeps the optimizer
/// states of that part alone. Parameters are numbered over all groups. Everything that takes an index, of a parameter,
/// a group or a state, throws Error{invalid_argument} for a bad one. Not thread-safe.
class ShardedOptimizer {
 public:
  [[nodiscard]] std::size_t parameter_count() const noexcept;
  [[nodiscard]] std::size_t element_count(std::size_t index) const;  ///< of the whole parameter

  /// What this rank owns of parameter `index`; changes with ZeroOptimizer::reconfigure() only. ZeroOptimizer's shards
  /// are fixed once the first step() or reduce() has come, or if options.buckets.rebuild is false; before, these three
  /// throw Error{invalid_argument}.
  [[nodiscard]] ShardRange shard(std::size_t index) const;
  [[nodiscard]] BufferView parameter_shard(std::size_t index) const;
  [[nodiscard]] BufferView gradient_shard(std::size_t index) const;
  /// gradient_shard() of all parameters that this rank owns a part of; none is empty. For weft/sharded_gradients.hpp,
  /// between reduce() and step().
  [[nodiscard]] std::vector<BufferView> gradient_shards() const;

  [[nodiscard]] std::size_t group_count() const noexcept;
  [[nodiscard]] OptimizerOptions const& options(std::size_t group = 0) const;
  /// Of all groups. @throws Error{invalid_argument} for one that is not finite and at least 0.
  void set_lr(double lr);
  void set_lr(std::size_t group, double lr);
  /// From the next step on, the same on every rank: a step finds out where they differ. @throws Error{invalid_argument}
  /// for options that make no sense, or are of another optimizer or keep other states than the group's.
  void set_options(std::size_t group, OptimizerOptions const& options);
  [[nodiscard]] std::int64_t step_count() const;  ///< steps that were applied; on a GPU waits for it
  void set_step_count(std::int64_t step);         ///< @throws Error{invalid_argument} for one below 0 or above 2^53
  /// Of the last step's unscaled gradients, the same on every rank; not finite: that step was skipped. Zero where
  /// options.gradients asks for nothing. On a GPU waits for it.
  [[nodiscard]] GradientNorm gradient_norm() const;
  /// When the last step updated this rank's shards, bucket by bucket or unit by unit; on a GPU empty.
  [[nodiscard]] std::span<Interval const> updates() const noexcept;
  /// On a GPU, where the step was timed: the same in the GPU's time, see Bucketer::timings_since().
  [[nodiscard]] std::vector<Interval> updates_since(Event const& origin,
                                                    std::chrono::steady_clock::time_point at) const;

  // For checkpoints. A parameter's master is its f32 original, or where it has none (f32 parameters, or without
  // optimizer.master_weights) its own values as f32. What is set must not change while a step is under way, or while a
  // unit of FullySharded's is in use. Setters, and all that is of this rank's shard, throw Error{invalid_argument} on a
  // wrong count and while ZeroOptimizer's shards may still move: construct it with options.buckets.rebuild = false to
  // load before the first step.

  [[nodiscard]] std::span<std::string_view const> state_names(std::size_t index) const;
  /// Collective: of the whole parameter, on every rank.
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which);
  [[nodiscard]] std::vector<float> master(std::size_t index);
  /// Take this rank's part of `values`, which are of the whole parameter and the same on every rank. All ranks call
  /// set_parameter(), which sets the parameter and its master.
  void set_state(std::size_t index, std::size_t which, std::span<float const> values);
  void set_parameter(std::size_t index, std::span<float const> values);

  /// Local: of shard(index).
  [[nodiscard]] std::vector<float> state_shard(std::size_t index, std::size_t which) const;
  [[nodiscard]] std::vector<float> master_shard(std::size_t index) const;
  void set_state_shard(std::size_t index, std::size_t which, std::span<float const> values);
  /// Sets parameter_shard(index) too; the other ranks have it after share_parameters(), which must follow.
  void set_master_shard(std::size_t index, std::span<float const> values);
  /// Collective: whatever is read from now on has the shards' values. ZeroOptimizer's parameters are to be waited for
  /// as after step().
  void share_parameters();

  /// Local: waits for what the last step() sent. @throws Error what made that step, or a call before it, fail: shards
  /// may then be of different steps, or of ranks that went different ways, and are not to be saved; weft::save() asks.
  void check_step();

  /// Bytes of states and f32 masters on this rank; 0 until shards are fixed.
  [[nodiscard]] std::size_t state_bytes() const noexcept;

 protected:
  class Core;
  explicit ShardedOptimizer(std::unique_ptr<Core> core);
  ~ShardedOptimizer();
  ShardedOptimizer(ShardedOptimizer&&) noexcept;
  ShardedOptimizer& operator=(ShardedOptimizer&&) noexcept;
  [[nodiscard]] Core& core() const noexcept { return *core_; }

 private:
  std::unique_ptr<Core> core_;
};

}  // namespace weft
