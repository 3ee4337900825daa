// Bucketer::reconfigure(): other settings between steps.
#include <string>
#include <utility>
#include <vector>

#include "bucketing/agreement.hpp"
#include "bucketing/bucketer_impl.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

std::vector<std::size_t> order_of(BucketPlan const& plan) {
  std::vector<std::size_t> order;
  for (Bucket const& bucket : plan.buckets) {
    for (BucketSlot const& slot : bucket.slots) order.push_back(slot.tensor);
  }
  return order;
}

}  // namespace

void Bucketer::Impl::check_may_change(BucketSettings const& settings) const {
  auto const refuse = [](ErrorCode code, char const* why) {
    throw Error(code, std::string("bucketer: reconfigure(): ") + why);
  };
  check_policy(settings.policy);
  if (tracker_.any_marked() || all_launched_) {
    refuse(ErrorCode::invalid_argument, "in the middle of a step; call finish() first");
  }
  if (join_) refuse(ErrorCode::invalid_argument, "between begin_join() and end_join()");
  if (sender_.compute()) {
    refuse(ErrorCode::unsupported, "on a GPU NCCL adds in an order that depends on a bucket's size: other bits");
  }
  bool const replans = settings.policy == BucketPolicy::optimal && settings != this->settings();
  if (replans && sender_.sharded()) {
    refuse(ErrorCode::unsupported, "BucketPolicy::optimal would move shards within a step; choose it at construction");
  }
}

BucketPlan Bucketer::Impl::plan_under(BucketSettings const& settings) const {
  check_usable();
  check_may_change(settings);
  return BucketPlan::build(specs_, order_of(storage_.plan()), settings.limits, sender_.shards());
}

void Bucketer::Impl::reconfigure(BucketSettings const& settings) {
  BucketPlan plan = plan_under(settings);
  check_agreement(communicator_, settings);
  if (settings == this->settings()) return;
  if (plan != storage_.plan()) move_to(std::move(plan));
  options_.limits = settings.limits;
  options_.policy = settings.policy;
  options_.overlap = settings.overlap;
  bool const replans = settings.policy == BucketPolicy::optimal || !ordered_;
  rebuild_pending_ = options_.rebuild && specs_.size() > 1 && replans;
  note_times();
}

}  // namespace weft
