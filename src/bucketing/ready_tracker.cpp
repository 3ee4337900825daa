#include "bucketing/ready_tracker.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/timeline.hpp"
#include "weft/error.hpp"

namespace weft {

void ReadyTracker::use(BucketPlan const& plan) {
  plan_order_.clear();
  for (Bucket const& bucket : plan.buckets) {
    for (BucketSlot const& slot : bucket.slots) plan_order_.push_back(slot.tensor);
  }
  std::size_t const tensors = plan_order_.size();
  bucket_of_.assign(tensors, 0);
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    for (BucketSlot const& slot : plan.buckets[bucket].slots) bucket_of_[slot.tensor] = bucket;
  }
  left_out_.resize(tensors);
  sizes_.assign(plan.buckets.size(), 0);
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
    if (left_out_[tensor] == 0) ++sizes_[bucket_of_[tensor]];
  }
  missing_.resize(sizes_.size());
  marked_.resize(tensors);
  has_gradient_.resize(tensors);
  order_.reserve(tensors);
  end_pass();
}

void ReadyTracker::check_index(char const* call, std::size_t tensor) const {
  if (tensor < tensor_count()) return;
  throw Error(ErrorCode::invalid_argument,
              tensor_count() == 0
                  ? fmt::format("bucketer: {}({}): there are no tensors", call, tensor)
                  : fmt::format("bucketer: {}({}): tensors are numbered 0 to {}", call, tensor, tensor_count() - 1));
}

void ReadyTracker::leave_out(std::vector<std::size_t> const& tensors) {
  for (std::size_t const tensor : tensors) {
    if (left_out_[tensor] == 0) --sizes_[bucket_of_[tensor]];
    left_out_[tensor] = 1;
  }
  end_step();
}

bool ReadyTracker::mark(std::size_t tensor, bool with_gradient) {
  check_index(with_gradient ? "mark_ready" : "mark_unused", tensor);
  if (left_out_[tensor] != 0) {
    if (!with_gradient) return false;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucketer: mark_ready({}): tensor {} had no gradient in the first step, and options.unused "
                            "says that it never has one on this rank; UnusedGradients::find allows changes",
                            tensor, tensor));
  }
  if (marked_[tensor] != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("bucketer: mark_ready({}): already marked in this step; call finish() between steps", tensor));
  }
  marked_[tensor] = 1;
  if (with_gradient) has_gradient_[tensor] = 1;
  order_.push_back(tensor);
  if (!times_.empty()) times_[tensor] = now();
  return --missing_[bucket_of_[tensor]] == 0;
}

std::vector<std::uint64_t> ReadyTracker::observed_order() const {
  std::vector<std::uint64_t> order(order_.begin(), order_.end());
  order.reserve(tensor_count());
  for (std::size_t const tensor : plan_order_) {
    if (marked_[tensor] == 0) order.push_back(tensor);
  }
  return order;
}

bool ReadyTracker::any_gradient() const noexcept {
  return std::find(has_gradient_.begin(), has_gradient_.end(), std::uint8_t{1}) != has_gradient_.end();
}

void ReadyTracker::note_times(bool wanted) {
  times_.assign(wanted ? tensor_count() : 0, {});
}

std::vector<double> ReadyTracker::observed_times(std::chrono::steady_clock::time_point end) const {
  std::vector<double> seconds(tensor_count(), 0);
  if (order_.empty()) return seconds;
  for (std::size_t tensor = 0; tensor < seconds.size(); ++tensor) {
    std::chrono::duration<double> const after = (marked_[tensor] != 0 ? times_[tensor] : end) - times_[order_.front()];
    seconds[tensor] = after.count();
  }
  return seconds;
}

void ReadyTracker::end_pass() noexcept {
  std::copy(sizes_.begin(), sizes_.end(), missing_.begin());
  std::fill(marked_.begin(), marked_.end(), std::uint8_t{0});
  order_.clear();
}

void ReadyTracker::end_step() noexcept {
  end_pass();
  std::fill(has_gradient_.begin(), has_gradient_.end(), std::uint8_t{0});
}

}  // namespace weft
