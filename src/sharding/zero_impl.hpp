#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/gradient_presence.hpp"
#include "sharding/parameter_gathers.hpp"
#include "sharding/sharded_core.hpp"
#include "weft/error.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft {

/// Not thread-safe.
class ZeroOptimizer::Impl final : public ShardedOptimizer::Core {
 public:
  Impl(Communicator& communicator, std::vector<ParameterGroup> const& groups, ZeroOptions const& options);
  ~Impl() override;

  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  [[nodiscard]] Bucketer& bucketer() noexcept { return bucketer_; }
  [[nodiscard]] Bucketer const& bucketer() const noexcept { return bucketer_; }
  [[nodiscard]] ParameterGathers const& gathers() const noexcept { return gathers_; }
  [[nodiscard]] BufferView parameter(std::size_t index) const {
    check_index(index, "parameter");
    return parameters_.tensor(index);
  }
  [[nodiscard]] std::size_t element_count(std::size_t index) const override { return parameters_.tensor(index).count; }
  [[nodiscard]] BufferView parameter_shard(std::size_t index) const override {
    ShardRange const mine = shards_.shard(index);
    return parameters_.tensor(index).slice(mine.first, mine.count);
  }
  [[nodiscard]] BufferView gradient_shard(std::size_t index) const override {
    return shards_.in_part(bucketer_.shard(shards_.bucket_of(index)), index);
  }

  void mark_ready(std::size_t index) {
    check_not_reduced("mark_ready", index);
    any_marked_ = true;
    bucketer_.mark_ready(index);
  }
  void mark_unused(std::size_t index) {
    check_not_reduced("mark_unused", index);
    any_marked_ = true;
    bucketer_.mark_unused(index);
  }
  void reduce();
  void step(StepInputs const& inputs);
  void wait_parameter(std::size_t index);
  void wait_parameters();

  void share_parameters() override;

  void reconfigure(BucketSettings const& settings);
  [[nodiscard]] bool may_move_shards() const noexcept;

 private:
  void check_may_change(BucketSettings const& settings) const;
  [[nodiscard]] PieceOptimizer shards_for(BucketStorage const& parameters);
  void move_to(BucketStorage parameters, PieceOptimizer shards);
  void move_values(PieceOptimizer& to, std::size_t index);
  [[nodiscard]] BucketerOptions with_judge(BucketerOptions options);
  void take_values(std::vector<ParameterGroup> const& groups);
  [[nodiscard]] BucketPlan parameter_plan(BucketPlan gradients) const;
  void adopt_plan();
  void check_not_reduced(char const* call, std::size_t index) const;
  void launch_reductions();
  void finish_reductions();
  void update_as_they_arrive();
  void update_and_gather_from_the_last();
  void update_and_gather_as_they_arrive(std::uint32_t tag);
  void look_at(BufferView shard);
  void judge_again();
  void make_device_judge();
  /// `again`: gradients may have changed since they were reduced, so they are looked at again.
  [[nodiscard]] StepInputs judged(StepInputs const& inputs, bool again);
  [[nodiscard]] StepInputs judged_on_device(StepInputs const& inputs, bool again);
  void zero_rest();
  void zero_rest_on_device();
  void launch_gathers(std::uint32_t tag);
  /// `can_ask`: all ranks have made the same calls since the step.
  template <typename Wait>
  auto explained(bool can_ask, Wait&& wait);

  [[nodiscard]] BufferView gradient_of(ShardPiece const& piece) const override {
    return bucketer_.shard(piece.bucket).slice(piece.offset, piece.count);
  }
  void wait_for_gradient(ShardPiece const& piece) override {
    if (!reduced_) bucketer_.wait(piece.tensor);
  }
  [[nodiscard]] bool has_arrived(ShardPiece const& piece) const {
    return reduced_ || bucketer_.has_arrived(piece.tensor);
  }
  [[nodiscard]] bool has_gradient(ShardPiece const& piece) const override {
    return bucketer_.has_gradient(piece.tensor);
  }
  [[nodiscard]] Owners owners() override { return {communicator_, parameters_.plan()}; }
  void finish_step() override { wait_parameters(); }
  void settle(char const* /*call*/) override { wait_parameters(); }
  [[nodiscard]] BufferView unfixed(std::size_t index) const override { return parameters_.tensor(index); }
  void set_whole(std::size_t index, std::span<float const> values) override;

  Communicator& communicator_;
  BucketerOptions options_;
  bool zero_gradients_;
  std::optional<DataType> parameter_dtype_;  ///< where it differs from the gradients'
  Bucketer bucketer_;
  BucketStorage parameters_;
  ParameterGathers gathers_;
  std::unordered_map<void const*, std::size_t> judged_as_;  ///< on a GPU, by a shard's address: its bucket
  bool any_marked_ = false;              ///< since step(): this rank may have sent buckets that others have not
  bool reduced_ = false;                 ///< reduce() has been called, step() not yet: gradients may have been changed
  std::optional<BrokenPromise> broken_;  ///< by this rank, in this step
};

}  // namespace weft
