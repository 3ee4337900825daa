#include "sharding/parameter_gathers.hpp"

#include <fmt/format.h>

#include <exception>

#include "bucketing/bucket_names.hpp"
#include "collectives/device_access.hpp"
#include "core/log.hpp"
#include "runtime/timeline.hpp"
#include "sharding/step_settings.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"

namespace weft {

void ParameterGathers::use(BucketPlan const& plan) {
  std::size_t const buckets = plan.buckets.size();
  works_.assign(buckets, Work());
  names_.clear();
  for (Bucket const& bucket : plan.buckets) names_.push_back(name_tensors(bucket));
  launched_.reserve(buckets);
  timings_.reserve(buckets);
}

void ParameterGathers::launch(BucketStorage const& parameters, std::size_t bucket, std::uint32_t tag) {
  BufferView const whole = parameters.bucket(bucket);
  if (whole.count == 0) return;
  BufferView const mine = parameters.shard(bucket, communicator_.rank(), communicator_.size());
  CollectiveOptions const how{.stream = stream_, .timeout = {}, .tag = launched_.empty() ? tag : 0};
  launched_.push_back({bucket, whole.bytes(), now(), {}});
  auto& timing = launched_.back().timing;
  if (timed_) timing.emplace(*compute_);
  if (timing) {
    timing->start(stream_);
  } else if (compute_) {
    follow(stream_, *compute_);
  }
  works_[bucket] = communicator_.all_gather(mine, whole, how);
  if (timing) timing->finish(stream_);
}

void ParameterGathers::wait_for(std::size_t bucket) const {
  if (!launched_.empty() && !compute_) wait_for_one(launched_.front().bucket);
  wait_for_one(bucket);
}

void ParameterGathers::wait_for_one(std::size_t bucket) const {
  try {
    if (compute_) {
      works_[bucket].wait_on(*compute_);
      for (Launched const& one : launched_) {
        if (one.bucket == bucket && one.timing) one.timing->wait_on(*compute_);
      }
      if (auto const failure = DeviceAccess::backend(communicator_)->failure()) std::rethrow_exception(failure);
      return;
    }
    works_[bucket].wait();
  } catch (Error const& error) {
    throw Error(error.code(), fmt::format("sending parameters {} (bucket {} of {}): {}", names_[bucket], bucket,
                                          works_.size(), error.what()));
  }
}

void ParameterGathers::wait_for_all() {
  if (launched_.empty()) return;
  for (Launched const& one : launched_) wait_for(one.bucket);
  timings_.clear();
  device_timings_.clear();
  for (Launched const& one : launched_) {
    if (one.timing) device_timings_.push_back({one.bytes, *one.timing});
    if (compute_) {  // asking a GPU means waiting for it; and a graph may not wait for what it did not record
      works_[one.bucket] = Work();
      continue;
    }
    WorkTimings const times = works_[one.bucket].timings();
    timings_.push_back({one.bytes, one.at, times.started, times.finished});
  }
  launched_.clear();
}

void ParameterGathers::drain(bool log_failures) const {
  for (Work const& work : works_) {
    try {
      work.wait();
    } catch (std::exception const& error) {
      if (log_failures) {
        log(LogLevel::warn, fmt::format("zero optimizer: its last parameters did not arrive: {}",
                                        StepSettings::name_tags(error.what())));
      }
      log_failures = false;  // one cause is logged once
    }
  }
}

}  // namespace weft
