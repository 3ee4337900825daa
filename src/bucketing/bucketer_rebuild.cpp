#include <fmt/format.h>

#include "bucketing/bucketer_impl.hpp"
#include "core/log.hpp"
#include "runtime/timeline.hpp"
#include "weft/error.hpp"

namespace weft {

void Bucketer::Impl::resize_per_bucket() {
  sent_.assign(storage_.bucket_count(), {});
  divided_.assign(storage_.bucket_count(), 0);
  device_scale_.forget();
  sender_.forget_feedback();
  ready_.assign(storage_.bucket_count(), Clock::time_point());
  timings_.reserve(storage_.bucket_count());
}

// Has the times noted that an optimal plan is made from, if one is to be made.
void Bucketer::Impl::note_times() {
  bool const wanted = plans_optimally();
  if (sender_.compute()) {
    marked_at_ = std::vector<Event>(wanted ? specs_.size() : 0);  // made anew, as copies would share one event
    sender_.set_timed(options_.timed || wanted);
  } else {
    tracker_.note_times(wanted);
  }
}

// Waits for the GPU, and so for all events that compute recorded or waits for.
void Bucketer::Impl::observe_device(Observation& seen) const {
  Event now;
  now.record(*sender_.compute());
  now.synchronize();
  seen.ready.assign(specs_.size(), 0);
  auto const first = static_cast<std::size_t>(seen.order.front());
  for (std::size_t tensor = 0; tensor < specs_.size() && tracker_.is_marked(first); ++tensor) {
    Event const& ready = tracker_.is_marked(tensor) ? marked_at_[tensor] : now;
    seen.ready[tensor] = std::chrono::duration<double>(marked_at_[first].elapsed_until(ready)).count();
  }
  for (std::size_t bucket = 0; bucket < launched_; ++bucket) {
    if (!sent_[bucket].timing) continue;
    seen.bytes.push_back(storage_.plan().buckets[bucket].bytes());
    seen.seconds.push_back(sent_[bucket].timing->seconds());
  }
}

// timings_ must be this step's, or empty where nothing has been sent.
Observation Bucketer::Impl::observation() const {
  Observation seen{tracker_.observed_order(), {}, {}, {}};
  if (options_.policy != BucketPolicy::optimal) return seen;
  if (sender_.compute()) {
    observe_device(seen);
    return seen;
  }
  seen.ready = tracker_.observed_times(gave_up_);
  for (std::size_t bucket = 0; bucket < launched_; ++bucket) {
    if (storage_.plan().buckets[bucket].count == 0) continue;
    BucketTiming const& timing = timings_[bucket];
    seen.bytes.push_back(timing.bytes);
    seen.seconds.push_back(std::chrono::duration<double>(timing.finished - timing.started).count());
  }
  return seen;
}

void Bucketer::Impl::rebuild(Observation seen) {
  rebuild_pending_ = false;
  ordered_ = true;
  note_times();
  try {
    BucketPlan plan = replan(communicator_, sender_, specs_, options_, std::move(seen), cost_);
    if (plan != storage_.plan()) move_to(std::move(plan));
  } catch (Error const& error) {
    // allocate() fails on every rank, so all of them keep the first plan.
    if (error.code() != ErrorCode::out_of_memory) throw;
    log(LogLevel::warn, fmt::format("bucketer: keeping the first bucket plan: {}", error.what()));
  }
}

void Bucketer::Impl::rebuild_before_sending() {
  rebuild(observation());
  ready_.assign(storage_.bucket_count(), now());
}

// Memory for what other ranks own is freed: on a GPU bucket by bucket, on the host page by page where buckets stay.
BucketStorage Bucketer::Impl::allocate(BucketPlan plan) const {
  bool const releases = options_.collective == BucketCollective::reduce_scatter_and_release;
  if (releases && (sender_.compute() || options_.come_and_go)) {
    return {communicator_, std::move(plan), sender_.compute(), sender_.shards()};
  }
  return {communicator_, std::move(plan), MemoryKind::gradients, sender_.compute()};
}

// Between steps a sharded bucket holds only remains, which are not worth the pages that copying would touch.
void Bucketer::Impl::move_to(BucketPlan plan) {
  BucketStorage storage = allocate(std::move(plan));
  if (!sender_.sharded() || tracker_.any_gradient()) storage.copy_tensors_from(storage_);
  storage_ = std::move(storage);
  tracker_.use(storage_.plan());
  resize_per_bucket();
  ++generation_;
}

}  // namespace weft
