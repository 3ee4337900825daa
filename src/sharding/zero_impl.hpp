#pragma once

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/gradient_presence.hpp"
#include "sharding/gradient_judge.hpp"
#include "sharding/parameter_gathers.hpp"
#include "sharding/shard_optimizer.hpp"
#include "weft/error.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft {

/// Not thread-safe.
class ZeroOptimizer::Impl {
 public:
  Impl(Communicator& communicator, std::vector<ParameterGroup> const& groups, ZeroOptions const& options);
  ~Impl() { gathers_.drain(!failure_); }

  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  [[nodiscard]] Bucketer& bucketer() noexcept { return bucketer_; }
  [[nodiscard]] Bucketer const& bucketer() const noexcept { return bucketer_; }
  [[nodiscard]] ShardOptimizer& shards() noexcept { return shards_; }
  [[nodiscard]] ParameterGathers const& gathers() const noexcept { return gathers_; }
  [[nodiscard]] GradientJudge const& judge() const noexcept { return judge_; }
  [[nodiscard]] std::span<Interval const> updates() const noexcept { return updates_; }
  [[nodiscard]] BufferView parameter(std::size_t index) const {
    check_index(index, "parameter");
    return parameters_.tensor(index);
  }
  [[nodiscard]] ShardRange shard(char const* call, std::size_t index) const {
    check_index(index, call);
    shards_.check_fixed(call, index);
    return shards_.shard(index);
  }

  void mark_ready(std::size_t index) {
    check_not_reduced("mark_ready", index);
    bucketer_.mark_ready(index);
  }
  void mark_unused(std::size_t index) {
    check_not_reduced("mark_unused", index);
    bucketer_.mark_unused(index);
  }
  void reduce();
  void step(StepInputs const& inputs);
  void wait_parameter(std::size_t index);
  void wait_parameters();

  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which);
  [[nodiscard]] std::vector<float> master(std::size_t index);
  void set_state(std::size_t index, std::size_t which, std::span<float const> values);
  void set_parameter(std::size_t index, std::span<float const> values);
  void set_master_shard(std::size_t index, std::span<float const> values);
  void share_parameters();

  void check_index(std::size_t index, char const* call) const {
    if (index < shards_.parameter_count()) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ZeroOptimizer::{}: index {} of {} parameters", call, index, shards_.parameter_count()));
  }

 private:
  void take_values(std::vector<ParameterGroup> const& groups);
  [[nodiscard]] BucketPlan parameter_plan() const;
  void adopt_plan();
  void check_not_reduced(char const* call, std::size_t index) const;
  void launch_reductions();
  void finish_reductions();
  void update_as_they_arrive();
  void update_and_gather_from_the_last();
  void update_bucket(std::span<ShardPiece const> pieces);
  void judge_again();
  void update_with_norms();
  void zero_rest();
  void launch_gathers();
  [[nodiscard]] std::vector<float> whole_of(std::size_t index, std::span<float const> mine);
  void check_whole(char const* call, std::size_t index, std::size_t count) const;
  [[nodiscard]] BufferView gradient_of(ShardPiece const& piece) const {
    return bucketer_.gradient(piece.tensor).slice(piece.first, piece.count);
  }
  void wait_for_gradient(ShardPiece const& piece) {
    if (!reduced_) bucketer_.wait(piece.tensor);
  }
  /// Else it is not updated.
  [[nodiscard]] bool has_gradient(ShardPiece const& piece) const { return bucketer_.has_gradient(piece.tensor); }
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  template <typename Action>
  void guarded(Action&& action);

  Communicator& communicator_;
  GradientJudge judge_;  ///< the stream of options_ uses it
  BucketerOptions options_;
  bool zero_gradients_;
  std::optional<DataType> parameter_dtype_;  ///< where it is not the gradients'
  Bucketer bucketer_;
  BucketStorage parameters_;
  ShardOptimizer shards_;
  ParameterGathers gathers_;
  std::vector<Interval> updates_;
  bool reduced_ = false;                 ///< reduce() came, step() did not: gradients may have been changed
  std::optional<BrokenPromise> broken_;  ///< by this rank, in this step
  std::exception_ptr failure_;           ///< why this is of no more use
};

// Other ranks may have got further or less far than this one.
template <typename Action>
void ZeroOptimizer::Impl::guarded(Action&& action) {
  try {
    action();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

}  // namespace weft
