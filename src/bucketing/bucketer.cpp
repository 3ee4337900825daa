#include "weft/bucketer.hpp"

#include <fmt/format.h>

#include <exception>
#include <numeric>

#include "bucketing/agreement.hpp"
#include "bucketing/bucket_layout.hpp"
#include "bucketing/bucket_sender.hpp"
#include "bucketing/bucket_storage.hpp"
#include "bucketing/ready_tracker.hpp"
#include "bucketing/replan.hpp"
#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

BucketPlan first_plan(std::span<TensorSpec const> specs, BucketLimits const& limits, std::size_t shards) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return BucketPlan::build(specs, order, limits, shards);
}

// All that can be refused without asking the other ranks comes first, so that nobody waits for a rank that gave up.
BucketPlan agreed_plan(Communicator& communicator, std::span<TensorSpec const> specs, BucketerOptions const& options,
                       std::size_t shards) {
  if (!is_valid(options.op)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucketer: unknown reduce operation {}", static_cast<int>(options.op)));
  }
  if (options.collective < BucketCollective::all_reduce ||
      options.collective > BucketCollective::reduce_scatter_and_release) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucketer: unknown collective {}", static_cast<int>(options.collective)));
  }
  if (options.policy < BucketPolicy::caps || options.policy > BucketPolicy::optimal) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucketer: unknown policy {}", static_cast<int>(options.policy)));
  }
  if (options.transfer_cost) check_cost(*options.transfer_cost);
  BucketPlan plan = first_plan(specs, options.limits, shards);
  check_agreement(communicator, specs, options);
  return plan;
}

}  // namespace

class Bucketer::Impl {
 public:
  Impl(Communicator& communicator, std::vector<TensorSpec> specs, BucketerOptions const& options)
      : communicator_(communicator),
        specs_(std::move(specs)),
        options_(options),
        sender_(communicator, options),
        storage_(communicator, agreed_plan(communicator, specs_, options, sender_.shards())),
        tracker_(storage_.plan()),
        rebuild_pending_(options.rebuild && specs_.size() > 1) {
    resize_per_bucket();
    tracker_.note_times(rebuild_pending_ && options.policy == BucketPolicy::optimal);
  }

  ~Impl() { drain(); }

  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  [[nodiscard]] BucketStorage const& storage() const noexcept { return storage_; }
  [[nodiscard]] ReadyTracker const& tracker() const noexcept { return tracker_; }
  [[nodiscard]] std::size_t generation() const noexcept { return generation_; }
  [[nodiscard]] std::span<BucketTiming const> timings() const noexcept { return timings_; }
  [[nodiscard]] bool sync() const noexcept { return sync_; }
  [[nodiscard]] std::optional<TransferCost> cost() const noexcept { return cost_; }

  void mark_ready(std::size_t index);
  void set_sync(bool sync);
  void finish();
  void finish_launching();
  void wait(std::size_t index);

 private:
  void resize_per_bucket();
  void launch_next();
  void launch_full_buckets();
  void wait_for_bucket(std::size_t bucket);
  void wait_for_all();
  void record_timings();
  [[nodiscard]] Observation observation() const;
  void rebuild(Observation seen);
  void rebuild_before_sending();
  void move_to(BucketPlan plan);
  void drain() noexcept;
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  template <typename Action>
  void guarded(Action&& action);
  [[nodiscard]] Error in_bucket(std::size_t bucket, Error const& cause) const;

  Communicator& communicator_;
  std::vector<TensorSpec> specs_;
  BucketerOptions options_;
  BucketSender sender_;
  BucketStorage storage_;
  ReadyTracker tracker_;
  std::vector<Work> works_;               ///< by bucket; a default Work where nothing is sent
  std::vector<Clock::time_point> ready_;  ///< by bucket
  std::vector<BucketTiming> timings_;
  Clock::time_point gave_up_;         ///< when finish_launching() took what was not marked for missing
  std::optional<TransferCost> cost_;  ///< what the plan was made with
  std::size_t launched_ = 0;          ///< buckets launched in this step: always the first ones of the plan
  std::size_t generation_ = 0;
  bool all_launched_ = false;  ///< finish_launching() came, finish() did not
  bool sync_ = true;
  bool rebuild_pending_;
  std::exception_ptr failure_;  ///< why this Bucketer is of no more use
};

// A failure of anything that talks to other ranks is final: they may have got further or less far than this rank.
template <typename Action>
void Bucketer::Impl::guarded(Action&& action) {
  try {
    action();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

Error Bucketer::Impl::in_bucket(std::size_t bucket, Error const& cause) const {
  Bucket const& plan = storage_.plan().buckets[bucket];
  return {cause.code(), fmt::format("bucket {} of {} ({} tensors, {} bytes): {}", bucket, storage_.bucket_count(),
                                    plan.slots.size(), plan.bytes(), cause.what())};
}

void Bucketer::Impl::resize_per_bucket() {
  works_.assign(storage_.bucket_count(), Work());
  ready_.assign(storage_.bucket_count(), Clock::time_point());
  timings_.reserve(storage_.bucket_count());
}

void Bucketer::Impl::launch_next() {
  std::size_t const bucket = launched_;
  BufferView const view = storage_.bucket(bucket);
  if (view.count != 0) {
    try {
      works_[bucket] = sender_.send(storage_, bucket);
    } catch (Error const& error) {
      throw in_bucket(bucket, error);
    }
  }
  ++launched_;
}

void Bucketer::Impl::launch_full_buckets() {
  while (launched_ < storage_.bucket_count() && tracker_.is_full(launched_)) launch_next();
}

void Bucketer::Impl::mark_ready(std::size_t index) {
  check_usable();
  if (all_launched_) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("bucketer: mark_ready({}): this step's buckets are on their way; call finish() first", index));
  }
  if (!tracker_.mark(index)) return;
  std::size_t const bucket = tracker_.bucket_of(index);
  ready_[bucket] = Clock::now();
  bool const overlaps = options_.overlap && !(sender_.sharded() && rebuild_pending_);
  if (sync_ && overlaps && bucket == launched_) guarded([this] { launch_full_buckets(); });
}

void Bucketer::Impl::set_sync(bool sync) {
  if (!sync_) {
    tracker_.end_pass();
  } else if (!sync) {
    check_usable();
    if (tracker_.any_marked() || all_launched_) {
      throw Error(ErrorCode::invalid_argument,
                  "bucketer: set_sync(false): tensors of a synchronised step are marked already; call finish() first");
    }
  }
  sync_ = sync;
}

void Bucketer::Impl::finish_launching() {
  check_usable();
  if (!sync_ || all_launched_) return;
  gave_up_ = Clock::now();
  // Launched buckets are full: all their tensors have gradients and may no longer be touched.
  for (std::size_t bucket = launched_; bucket < storage_.bucket_count(); ++bucket) {
    if (tracker_.is_full(bucket)) continue;
    ready_[bucket] = gave_up_;
    for (BucketSlot const& slot : storage_.plan().buckets[bucket].slots) {
      if (!tracker_.has_gradient(slot.tensor)) storage_.zero(slot.tensor);
    }
  }
  guarded([this] {
    if (rebuild_pending_ && sender_.sharded()) rebuild_before_sending();
    while (launched_ < storage_.bucket_count()) launch_next();
  });
  all_launched_ = true;
}

void Bucketer::Impl::wait_for_bucket(std::size_t bucket) {
  try {
    works_[bucket].wait();
  } catch (Error const& error) {
    throw in_bucket(bucket, error);
  }
}

void Bucketer::Impl::wait(std::size_t index) {
  check_usable();
  tracker_.check_index("wait", index);
  if (!all_launched_) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("bucketer: wait({}): call finish_launching() first, else the bucket may never start", index));
  }
  guarded([&] { wait_for_bucket(tracker_.bucket_of(index)); });
}

// The first failure, once nothing is under way any more.
void Bucketer::Impl::wait_for_all() {
  std::exception_ptr first;
  for (std::size_t bucket = 0; bucket < launched_; ++bucket) {
    try {
      wait_for_bucket(bucket);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (launched_ > 0) sender_.wait_for_followers();
  if (first) std::rethrow_exception(first);
}

void Bucketer::Impl::record_timings() {
  timings_.clear();
  for (std::size_t bucket = 0; bucket < storage_.bucket_count(); ++bucket) {
    WorkTimings const times = works_[bucket].timings();
    bool const sent = storage_.bucket(bucket).count != 0;
    timings_.push_back({storage_.plan().buckets[bucket].bytes(), ready_[bucket], sent ? times.started : ready_[bucket],
                        sent ? times.finished : ready_[bucket]});
  }
}

void Bucketer::Impl::finish() {
  check_usable();
  if (!sync_) {
    tracker_.end_pass();
    timings_.clear();
    return;
  }
  finish_launching();
  guarded([this] { wait_for_all(); });
  record_timings();
  Observation seen;
  if (rebuild_pending_) seen = observation();
  tracker_.end_step();
  launched_ = 0;
  all_launched_ = false;
  if (rebuild_pending_) guarded([&] { rebuild(std::move(seen)); });
}

Observation Bucketer::Impl::observation() const {
  bool const times = options_.policy == BucketPolicy::optimal;
  return {tracker_.observed_order(), times ? tracker_.observed_times(gave_up_) : std::vector<double>()};
}

void Bucketer::Impl::rebuild(Observation seen) {
  rebuild_pending_ = false;
  tracker_.note_times(false);
  try {
    BucketPlan plan = replan(communicator_, sender_, specs_, options_, std::move(seen), cost_);
    if (plan != storage_.plan()) move_to(std::move(plan));
  } catch (Error const& error) {
    // Every rank learns of the shortage from allocate(), so all of them keep the first plan.
    if (error.code() != ErrorCode::out_of_memory) throw;
    log(LogLevel::warn, fmt::format("bucketer: keeping the first bucket plan: {}", error.what()));
  }
}

void Bucketer::Impl::rebuild_before_sending() {
  rebuild(observation());
  ready_.assign(storage_.bucket_count(), Clock::now());
}

void Bucketer::Impl::move_to(BucketPlan plan) {
  BucketStorage storage(communicator_, std::move(plan));
  storage.copy_tensors_from(storage_);
  storage_ = std::move(storage);
  tracker_.use(storage_.plan());
  resize_per_bucket();
  ++generation_;
}

void Bucketer::Impl::drain() noexcept {
  for (std::size_t bucket = 0; bucket < launched_; ++bucket) {
    try {
      works_[bucket].wait();
    } catch (std::exception const& error) {
      // A failure that finish() or wait() has thrown is known to the caller; one that nobody asked for is not.
      if (!failure_) log(LogLevel::warn, fmt::format("bucketer: destroyed before finish(): {}", error.what()));
    }
  }
  if (launched_ > 0) sender_.wait_for_followers();
}

Bucketer::Bucketer(Communicator& communicator, std::vector<TensorSpec> specs, BucketerOptions const& options)
    : impl_(std::make_unique<Impl>(communicator, std::move(specs), options)) {}
Bucketer::~Bucketer() = default;
Bucketer::Bucketer(Bucketer&&) noexcept = default;
Bucketer& Bucketer::operator=(Bucketer&&) noexcept = default;

std::size_t Bucketer::tensor_count() const noexcept {
  return impl_->tracker().tensor_count();
}
BufferView Bucketer::gradient(std::size_t index) const {
  impl_->tracker().check_index("gradient", index);
  return impl_->storage().tensor(index);
}
std::size_t Bucketer::generation() const noexcept {
  return impl_->generation();
}
void Bucketer::mark_ready(std::size_t index) {
  impl_->mark_ready(index);
}
void Bucketer::set_sync(bool sync) {
  impl_->set_sync(sync);
}
bool Bucketer::sync() const noexcept {
  return impl_->sync();
}
void Bucketer::finish() {
  impl_->finish();
}
void Bucketer::wait(std::size_t index) {
  impl_->wait(index);
}
void Bucketer::finish_launching() {
  impl_->finish_launching();
}
BucketPlan const& Bucketer::plan() const noexcept {
  return impl_->storage().plan();
}
std::optional<TransferCost> Bucketer::transfer_cost() const noexcept {
  return impl_->cost();
}
std::span<BucketTiming const> Bucketer::timings() const noexcept {
  return impl_->timings();
}

}  // namespace weft
