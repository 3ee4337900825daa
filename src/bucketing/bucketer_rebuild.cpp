#include <fmt/format.h>

#include "bucketing/bucketer_impl.hpp"
#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft {

void Bucketer::Impl::resize_per_bucket() {
  sent_.assign(storage_.bucket_count(), {});
  divided_.assign(storage_.bucket_count(), 0);
  ready_.assign(storage_.bucket_count(), Clock::time_point());
  timings_.reserve(storage_.bucket_count());
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

}  // namespace weft
