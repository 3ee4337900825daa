#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/fails_once.hpp"
#include "sharding/device_judge.hpp"
#include "sharding/gradient_judge.hpp"
#include "sharding/piece_optimizer.hpp"
#include "sharding/step_settings.hpp"
#include "weft/communicator.hpp"
#include "weft/event.hpp"
#include "weft/sharded_optimizer.hpp"

namespace weft {

/// What ZeroOptimizer and FullySharded have in common: both shard their optimizer over the ranks. Not thread-safe.
class ShardedOptimizer::Core : protected FailsOnce {
 public:
  /// Errors begin with `who`.
  Core(char const* who, std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings,
       GradientPolicy const& policy)
      : who_(who), policy_(policy), shards_(who, groups, settings), judge_(policy) {}

  Core(Core const&) = delete;
  Core& operator=(Core const&) = delete;
  ~Core() override = default;

  [[nodiscard]] PieceOptimizer& shards() noexcept { return shards_; }
  [[nodiscard]] PieceOptimizer const& shards() const noexcept { return shards_; }
  /// The norm that the last step's judge found; on a GPU waits for it.
  [[nodiscard]] GradientNorm norm() const { return device_judge_ ? device_judge_->norm() : judge_.norm(); }
  [[nodiscard]] std::span<Interval const> updates() const noexcept { return updates_; }
  [[nodiscard]] std::vector<Interval> updates_since(Event const& origin,
                                                    std::chrono::steady_clock::time_point at) const;
  /// @throws Error{invalid_argument} naming `call`; so does fixed_shard().
  void check_index(std::size_t index, char const* call) const;
  [[nodiscard]] ShardRange fixed_shard(std::size_t index, char const* call) const;

  [[nodiscard]] virtual std::size_t element_count(std::size_t index) const = 0;
  [[nodiscard]] virtual BufferView parameter_shard(std::size_t index) const = 0;
  [[nodiscard]] virtual BufferView gradient_shard(std::size_t index) const = 0;
  [[nodiscard]] std::vector<BufferView> gradient_shards() const;

  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which);
  [[nodiscard]] std::vector<float> master(std::size_t index);
  [[nodiscard]] std::vector<float> state_shard(std::size_t index, std::size_t which) const;
  [[nodiscard]] std::vector<float> master_shard(std::size_t index) const;
  void set_state(std::size_t index, std::size_t which, std::span<float const> values);
  void set_state_shard(std::size_t index, std::size_t which, std::span<float const> values);
  void set_parameter(std::size_t index, std::span<float const> values);
  void set_master_shard(std::size_t index, std::span<float const> values);
  virtual void share_parameters() = 0;
  void check_step() {
    check_usable();
    finish_step();
  }

 protected:
  /// This rank's part of a gradient, once reduced; wait_for_gradient() blocks until it is. A piece is not updated
  /// unless some rank has_gradient().
  [[nodiscard]] virtual BufferView gradient_of(ShardPiece const& piece) const = 0;
  virtual void wait_for_gradient(ShardPiece const& piece) = 0;
  [[nodiscard]] virtual bool has_gradient(ShardPiece const& piece) const = 0;
  /// Called before anything is sent, so that a step may be repeated with correct inputs. On a GPU a step runs on
  /// compute_ and nowhere else. @throws Error{invalid_argument}
  void check_inputs(StepInputs const& inputs) const;
  /// Updates pieces whose gradients have arrived. On a GPU enqueued.
  void update(std::span<ShardPiece const> pieces);
  /// Forgets the last step's updates, before those of this one are noted.
  void forget_updates() {
    updates_.clear();
    device_updates_.clear();
  }
  /// Updates all pieces, once their gradients have arrived, for an optimizer like Lamb: it scales a whole tensor by its
  /// norms, whose parts are on several ranks. Collective; on a GPU enqueued on compute_.
  void update_with_norms(CollectiveOptions const& how);

  /// Which rank owns what: the parts of `plan`, by rank of `communicator`.
  struct Owners {
    Communicator& communicator;
    BucketPlan const& plan;
  };
  [[nodiscard]] virtual Owners owners() = 0;
  /// Blocks until everything that the last step sent has arrived.
  virtual void finish_step() = 0;
  /// Blocks until nothing reads parameters any more, so that they may be written. @throws where `call` is not allowed
  /// now.
  virtual void settle(char const* call) = 0;
  /// Parameter `index` as it lies on this rank before shards are fixed.
  [[nodiscard]] virtual BufferView unfixed(std::size_t index) const = 0;
  /// Writes the whole parameter, where it lies on this rank; after settle().
  virtual void set_whole(std::size_t index, std::span<float const> values) = 0;

 private:
  /// What state() or master() was asked for.
  struct Asked {
    std::size_t index;
    std::optional<std::size_t> state;  ///< absent: the master
  };

  [[nodiscard]] std::vector<float> whole_of(Asked const& asked, std::span<float const> mine);
  void update_with_norms_on_device();
  /// Enqueues an update, timed if that is wanted.
  template <typename Update>
  void time(Update const& enqueue);
  void check_whole(char const* call, std::size_t index, std::size_t count) const;

  char const* who_;

 protected:
  GradientPolicy policy_;
  PieceOptimizer shards_;
  GradientJudge judge_;                      ///< streams use it, too
  StepSettings settings_;                    ///< of the last step(); unused on a GPU
  std::optional<Stream> compute_;            ///< on a GPU: where parameters and gradients are written and used
  std::optional<DeviceJudge> device_judge_;  ///< on a GPU, once shards are fixed, if the policy needs one
  std::vector<Interval> updates_;            ///< on the host
  bool timed_ = false;                       ///< whether updates on a GPU are timed, by events

 private:
  std::vector<ShardPiece> updated_;  ///< scratch memory of update(), like gradients_
  std::vector<BufferView> gradients_;
  struct Stretch {
    Event from, to;
  };
  std::vector<Stretch> device_updates_;  ///< of the last step
  Buffer norms_;                         ///< on a GPU, once needed: two f64 for each parameter
};

}  // namespace weft
