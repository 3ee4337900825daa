#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "bucketing/active_ranks.hpp"
#include "bucketing/bucket_sender.hpp"
#include "bucketing/bucket_storage.hpp"
#include "bucketing/device_scale.hpp"
#include "bucketing/gradient_presence.hpp"
#include "bucketing/ready_tracker.hpp"
#include "bucketing/replan.hpp"
#include "bucketing/unused_tensors.hpp"
#include "core/fails_once.hpp"
#include "weft/bucketer.hpp"
#include "weft/event.hpp"

namespace weft {

/// Runs a Bucketer's steps by means of the classes that each do one part of it: BucketSender, BucketStorage,
/// ReadyTracker and so on.
class Bucketer::Impl final : FailsOnce {
 public:
  Impl(Communicator& communicator, std::vector<TensorSpec> specs, BucketerOptions const& options);
  ~Impl() override { drain(); }

  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  [[nodiscard]] BucketStorage const& storage() const noexcept { return storage_; }
  [[nodiscard]] BufferView shard(std::size_t bucket) const;
  [[nodiscard]] ReadyTracker const& tracker() const noexcept { return tracker_; }
  [[nodiscard]] std::size_t generation() const noexcept { return generation_; }
  [[nodiscard]] std::span<BucketTiming const> timings() const noexcept { return timings_; }
  [[nodiscard]] std::vector<BucketTiming> timings_since(Event const& origin,
                                                        std::chrono::steady_clock::time_point at) const;
  [[nodiscard]] bool sync() const noexcept { return sync_; }
  [[nodiscard]] std::optional<TransferCost> cost() const noexcept { return cost_; }

  [[nodiscard]] bool has_gradient(std::size_t index) const { return presence_.has_gradient(index); }

  void mark(std::size_t index, bool with_gradient);
  void set_sync(bool sync);
  void finish();
  void finish_launching();
  void wait(std::size_t index);
  [[nodiscard]] bool has_arrived(std::size_t index) const;
  void check_launched(char const* call, std::size_t index) const;
  void reconfigure(BucketSettings const& settings);
  [[nodiscard]] BucketPlan plan_under(BucketSettings const& settings) const;
  [[nodiscard]] BucketSettings settings() const noexcept {
    return {options_.limits, options_.policy, options_.overlap};
  }
  void begin_join(JoinOptions const& options);
  [[nodiscard]] bool shadow_step();
  std::size_t end_join() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void resize_per_bucket();
  void announce_step();
  void announce_own_step();
  void launch_next();
  void launch_full_buckets();
  void wait_for_bucket(std::size_t bucket);
  void divide_by_active(std::size_t bucket);
  void wait_for_all();
  void record_timings();
  void learn_unused();
  void check_may_change(BucketSettings const& settings) const;
  [[nodiscard]] Observation observation() const;
  void observe_device(Observation& seen) const;
  [[nodiscard]] bool plans_optimally() const noexcept {
    return rebuild_pending_ && options_.policy == BucketPolicy::optimal;
  }
  void note_times();
  void rebuild(Observation seen);
  void rebuild_before_sending();
  [[nodiscard]] BucketStorage allocate(BucketPlan plan) const;
  void move_to(BucketPlan plan);
  void drain() noexcept;
  /// Rethrows the exception being handled as an Error that names the bucket.
  [[noreturn]] void rethrow_from(std::size_t bucket);

  Communicator& communicator_;
  std::vector<TensorSpec> specs_;
  BucketerOptions options_;
  BucketSender sender_;
  BucketStorage storage_;
  ReadyTracker tracker_;
  GradientPresence presence_;
  UnusedTensors unused_;
  std::optional<ActiveRanks> join_;
  DeviceScale device_scale_;
  std::vector<BucketSender::Sent> sent_;  ///< by bucket
  std::vector<std::uint8_t> divided_;     ///< by bucket: divide_by_active() has been called
  std::vector<Clock::time_point> ready_;  ///< by bucket
  std::vector<BucketTiming> timings_;
  std::vector<Event> marked_at_;  ///< by tensor: where compute was at the mark; empty unless a GPU's times are noted
  Clock::time_point gave_up_;     ///< when finish_launching() took unmarked tensors for missing
  std::optional<TransferCost> cost_;  ///< the cost that the plan was made with
  std::size_t launched_ = 0;          ///< buckets launched in this step: always the first ones of the plan
  std::size_t generation_ = 0;
  bool all_launched_ = false;  ///< finish_launching() has been called, finish() not yet
  bool sync_ = true;
  bool shadowing_ = false;  ///< in a step of other ranks
  bool rebuild_pending_;
  bool ordered_ = false;  ///< the plan follows an order that was observed
};

}  // namespace weft
