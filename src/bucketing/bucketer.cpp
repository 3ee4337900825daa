#include "weft/bucketer.hpp"

#include <fmt/format.h>

#include <numeric>

#include "bucketing/agreement.hpp"
#include "bucketing/bucket_layout.hpp"
#include "bucketing/bucketer_impl.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

BucketPlan first_plan(std::span<TensorSpec const> specs, BucketLimits const& limits, std::size_t shards) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return BucketPlan::build(specs, order, limits, shards);
}

// What a rank can refuse without asking the others comes first, so that nobody waits for a rank that gave up.
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
  check_policy(options.policy);
  if (options.unused < UnusedGradients::zero || options.unused > UnusedGradients::fixed) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucketer: unknown way to treat unused gradients {}", static_cast<int>(options.unused)));
  }
  if (options.transfer_cost) check_cost(*options.transfer_cost);
  BucketPlan plan = first_plan(specs, options.limits, shards);
  check_agreement(communicator, specs, options);
  return plan;
}

}  // namespace

void check_policy(BucketPolicy policy) {
  if (policy == BucketPolicy::caps || policy == BucketPolicy::optimal) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("bucketer: unknown policy {}", static_cast<int>(policy)));
}

Bucketer::Impl::Impl(Communicator& communicator, std::vector<TensorSpec> specs, BucketerOptions const& options)
    : communicator_(communicator),
      specs_(std::move(specs)),
      options_(options),
      sender_(communicator, options),
      storage_(allocate(agreed_plan(communicator, specs_, options, sender_.shards()))),
      tracker_(storage_.plan()),
      presence_(options.unused, specs_.size()),
      unused_(presence_, specs_.size()),
      rebuild_pending_(options.rebuild && specs_.size() > 1) {
  resize_per_bucket();
  note_times();
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
BufferView Bucketer::shard(std::size_t index) const {
  return impl_->shard(index);
}
std::size_t Bucketer::generation() const noexcept {
  return impl_->generation();
}
void Bucketer::mark_ready(std::size_t index) {
  impl_->mark(index, true);
}
void Bucketer::mark_unused(std::size_t index) {
  impl_->mark(index, false);
}
bool Bucketer::has_gradient(std::size_t index) const {
  impl_->tracker().check_index("has_gradient", index);
  return impl_->has_gradient(index);
}
void Bucketer::begin_join(JoinOptions const& options) {
  impl_->begin_join(options);
}
bool Bucketer::shadow_step() {
  return impl_->shadow_step();
}
std::size_t Bucketer::end_join() noexcept {
  return impl_->end_join();
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
bool Bucketer::has_arrived(std::size_t index) const {
  return impl_->has_arrived(index);
}
void Bucketer::finish_launching() {
  impl_->finish_launching();
}
void Bucketer::reconfigure(BucketSettings const& settings) {
  impl_->reconfigure(settings);
}
BucketPlan Bucketer::plan_under(BucketSettings const& settings) const {
  return impl_->plan_under(settings);
}
BucketSettings Bucketer::settings() const noexcept {
  return impl_->settings();
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
std::vector<BucketTiming> Bucketer::timings_since(Event const& origin, std::chrono::steady_clock::time_point at) const {
  return impl_->timings_since(origin, at);
}

}  // namespace weft
