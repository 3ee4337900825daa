#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "sharding/compute_side.hpp"
#include "sharding/shard_groups.hpp"
#include "sharding/sharded_core.hpp"
#include "sharding/step_close.hpp"
#include "sharding/unit_gatherer.hpp"
#include "sharding/unit_layout.hpp"
#include "sharding/unit_reducer.hpp"
#include "weft/error.hpp"
#include "weft/fully_sharded.hpp"

namespace weft {

/// Keeps track of which units have their turn, between before() and after(), and starts what follows from that:
/// gathers, reductions and updates. Not thread-safe.
class FullySharded::Impl final : public ShardedOptimizer::Core {
 public:
  Impl(Communicator& world, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options);
  ~Impl() override;

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
  void wait_gathers();
  void reconfigure(GatherSettings const& settings);
  [[nodiscard]] GatherSettings const& gather_settings() const noexcept { return gather_settings_; }
  [[nodiscard]] GatherPolicy policy_of(GatherSettings const& settings) const;
  [[nodiscard]] bool is_on_gpu() const noexcept { return side_.is_gpu(); }
  [[nodiscard]] bool gathers() const noexcept { return groups_.gathers.size() > 1; }

  [[nodiscard]] std::size_t element_count(std::size_t index) const override { return layout_.place(index).count; }
  [[nodiscard]] BufferView parameter_shard(std::size_t index) const override;
  [[nodiscard]] BufferView gradient_shard(std::size_t index) const override;
  [[nodiscard]] GradientNorm measure_gradients(NormType type, float factor);

  void share_parameters() override;

  [[nodiscard]] UnitLayout const& layout() const noexcept { return layout_; }
  [[nodiscard]] UnitGatherer const& gatherer() const noexcept { return gatherer_; }
  [[nodiscard]] UnitReducer const& reducer() const noexcept { return reducer_; }
  [[nodiscard]] FullyShardedMemory memory() const noexcept;

 private:
  enum class Turn { none, forward, backward };
  struct UnitState {
    Turn turn = Turn::none;
    bool forwarded = false;  ///< since the last step
  };

  void take_values(Communicator& world, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options);
  void take_parameter(Communicator& world, std::size_t index, BufferView const& values, Buffer const& chunk);
  void bring_here(BufferView const& values, BufferView const& to) const;
  void begin_gradients(Use const& use);
  void note_gradients(std::size_t unit);
  void launch_reductions(std::uint32_t settings_tag);
  void announce_close(std::uint32_t settings_tag);
  [[nodiscard]] std::function<void(std::size_t flat)> on_shard();
  void judge_flat(std::size_t flat);
  void look_at_flat(std::size_t flat, Stream const& stream);
  [[nodiscard]] StepInputs judged(StepInputs const& inputs);
  [[nodiscard]] StepInputs judged_on_device(StepInputs const& inputs);
  void update_unit(std::size_t unit);
  void update_as_they_arrive();
  void update_in_order();
  void wait_for_reductions();
  void end_step();
  [[nodiscard]] std::span<ShardPiece const> pieces_of_unit(std::size_t unit) const noexcept;
  [[nodiscard]] BufferView piece_of(ShardPiece const& piece, BufferView const& flat_shard) const noexcept;

  [[nodiscard]] BufferView gradient_of(ShardPiece const& piece) const override {
    return piece_of(piece, reducer_.shard(piece.bucket));
  }
  void wait_for_gradient(ShardPiece const& piece) override { reducer_.wait_for(layout_.place(piece.tensor).unit); }
  [[nodiscard]] bool has_gradient(ShardPiece const& piece) const override;
  [[nodiscard]] Owners owners() override { return {groups_.gathers, layout_.plan()}; }
  void finish_step() override {}  // step() has done it
  void settle(char const* call) override;
  [[nodiscard]] BufferView unfixed(std::size_t /*index*/) const override { return {}; }  // fixed from the start
  void set_whole(std::size_t /*index*/, std::span<float const> /*values*/) override { share_parameters(); }

  void check_unit(std::size_t unit, char const* call) const;
  void check_idle(char const* call) const;
  void check_backward(char const* call) const;
  [[noreturn]] void refuse(char const* call, std::size_t unit, char const* why) const;
  [[nodiscard]] std::exception_ptr final_failure(std::exception_ptr caught) override;

  ShardGroups groups_;
  UnitLayout layout_;
  ComputeSide side_;
  GradientPresence presence_;
  std::vector<std::uint8_t> written_;  ///< by parameter: has a gradient on this rank in this step
  std::vector<std::uint8_t> unused_;   ///< by parameter: marked as without a gradient in the backward under way
  std::vector<NormParts> judged_;      ///< by piece; zeros for what was not sent in this step
  GradScaler* scaler_;
  GatherSettings gather_settings_;
  UnitGatherer gatherer_;
  UnitReducer reducer_;
  StepClose close_;
  std::vector<UnitState> units_;
  std::vector<char> updated_;  ///< by unit, in the step() under way
  bool sync_ = true;
  bool any_backward_ = false;  ///< since the last step
  float judged_scale_ = 1;     ///< the inverse scale that judged_ was measured with
  bool reduced_ = false;       ///< reduce() has been called, step() not yet
};

}  // namespace weft
