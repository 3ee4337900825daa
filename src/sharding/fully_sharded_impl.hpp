#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "sharding/gradient_judge.hpp"
#include "sharding/shard_groups.hpp"
#include "sharding/shard_optimizer.hpp"
#include "sharding/unit_gatherer.hpp"
#include "sharding/unit_layout.hpp"
#include "sharding/unit_reducer.hpp"
#include "weft/error.hpp"
#include "weft/fully_sharded.hpp"

namespace weft {

/// Whose turn it is, and what follows from it: gathers, reductions and updates. Not thread-safe.
class FullySharded::Impl {
 public:
  Impl(Communicator& world, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options);
  ~Impl();

  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  void before(Use const& use);
  void after(Use const& use);
  [[nodiscard]] BufferView parameter(std::size_t index) const;
  [[nodiscard]] BufferView gradient(std::size_t index) const;
  [[nodiscard]] bool holds_gradients(std::size_t unit) const;
  void mark_unused(std::size_t index);
  [[nodiscard]] bool has_gradient(std::size_t index) const;
  void reduce();
  void step(StepInputs const& inputs);
  bool set_sync(bool sync);

  [[nodiscard]] BufferView parameter_shard(std::size_t index) const;
  [[nodiscard]] BufferView gradient_shard(std::size_t index) const;
  [[nodiscard]] std::vector<BufferView> gradient_shards() const;
  [[nodiscard]] GradientNorm measure_gradients(NormType type, float factor);

  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which);
  [[nodiscard]] std::vector<float> master(std::size_t index);
  [[nodiscard]] std::vector<float> state_shard(std::size_t index, std::size_t which) const;
  [[nodiscard]] std::vector<float> master_shard(std::size_t index) const;
  void set_state(std::size_t index, std::size_t which, std::span<float const> values);
  void set_state_shard(std::size_t index, std::size_t which, std::span<float const> values);
  void set_parameter(std::size_t index, std::span<float const> values);
  void set_master_shard(std::size_t index, std::span<float const> values);
  void share_parameters();

  [[nodiscard]] UnitLayout const& layout() const noexcept { return layout_; }
  [[nodiscard]] UnitGatherer const& gatherer() const noexcept { return gatherer_; }
  [[nodiscard]] UnitReducer const& reducer() const noexcept { return reducer_; }
  [[nodiscard]] ShardOptimizer& shards() noexcept { return shards_; }
  [[nodiscard]] ShardOptimizer const& shards() const noexcept { return shards_; }
  [[nodiscard]] GradientJudge const& judge() const noexcept { return judge_; }
  [[nodiscard]] std::span<Interval const> updates() const noexcept { return updates_; }
  [[nodiscard]] FullyShardedMemory memory() const noexcept;

  void check_index(std::size_t index, char const* call) const;

 private:
  enum class Turn { none, forward, backward };
  struct UnitState {
    Turn turn = Turn::none;
    bool forwarded = false;  ///< since the last step
  };

  void take_values(Communicator& world, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options);
  void take_parameter(Communicator& world, std::size_t index, BufferView const& values, Buffer const& chunk);
  void begin_gradients(Use const& use);
  void note_gradients(std::size_t unit);
  void launch_reductions();
  void judge_flat(std::size_t flat);
  [[nodiscard]] StepInputs judged(StepInputs const& inputs);
  void update(std::size_t unit);
  void update_as_they_arrive();
  void update_in_order();
  void update_with_norms();
  void wait_for_reductions();
  void end_step();
  [[nodiscard]] std::span<ShardPiece const> pieces_of_unit(std::size_t unit) const noexcept;
  [[nodiscard]] BufferView piece_of(ShardPiece const& piece, BufferView const& flat_shard) const noexcept;
  [[nodiscard]] BufferView gradient_of(ShardPiece const& piece) const noexcept {
    return piece_of(piece, reducer_.shard(piece.bucket));
  }
  /// Else it is not updated.
  [[nodiscard]] bool has_gradient(ShardPiece const& piece) const;
  [[nodiscard]] std::vector<float> whole_of(std::size_t index, std::span<float const> mine);
  void check_unit(std::size_t unit, char const* call) const;
  void check_whole(char const* call, std::size_t index, std::size_t count) const;
  void check_idle(char const* call) const;
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  [[noreturn]] void refuse(char const* call, std::size_t unit, char const* why) const;
  template <typename Action>
  void guarded(Action&& action);
  /// Within a handler of `error`: remembers and throws it.
  [[noreturn]] void give_up(Error const& error);

  ShardGroups groups_;
  UnitLayout layout_;
  ShardOptimizer shards_;
  GradientPresence presence_;
  std::vector<std::uint8_t> written_;  ///< by parameter: has a gradient here, in this step
  std::vector<std::uint8_t> unused_;   ///< by parameter: has none in the backward under way
  GradientJudge judge_;                ///< the reducer's stream uses it
  std::vector<NormParts> judged_;      ///< by piece; zeros of what was not sent in this step
  GradScaler* scaler_;
  UnitGatherer gatherer_;
  UnitReducer reducer_;
  std::vector<std::size_t> first_piece_;  ///< by unit, and the end
  std::vector<UnitState> units_;
  std::vector<char> updated_;  ///< by unit, in the step() under way
  std::vector<Interval> updates_;
  bool sync_ = true;
  bool any_backward_ = false;   ///< since the last step
  bool reduced_ = false;        ///< reduce() came, step() did not
  std::exception_ptr failure_;  ///< why this is of no more use
};

// Other ranks may have got further or less far than this one. The caller's mistakes are found before anything is sent.
template <typename Action>
void FullySharded::Impl::guarded(Action&& action) {
  try {
    action();
  } catch (Error const& error) {
    if (error.code() == ErrorCode::invalid_argument) throw;
    give_up(error);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

}  // namespace weft
