#include "weft/zero_optimizer.hpp"

#include <cstring>

#include "optim/rule.hpp"
#include "sharding/zero_agreement.hpp"
#include "sharding/zero_impl.hpp"

namespace weft {
namespace {

std::vector<TensorSpec> specs_of(std::vector<ParameterGroup> const& groups) {
  std::vector<TensorSpec> specs;
  for (ParameterGroup const& group : groups) {
    for (BufferView const& parameter : group.parameters) specs.push_back({parameter.count, parameter.dtype});
  }
  return specs;
}

BucketerOptions bucketer_options(ZeroOptions const& options, GradientJudge& judge) {
  BucketerOptions buckets = options.buckets;
  buckets.collective = options.stage == ZeroStage::gradients ? BucketCollective::reduce_scatter_and_release
                                                             : BucketCollective::reduce_scatter;
  // Parameters travel on the gradients' stream, behind them.
  if (!buckets.stream) buckets.stream = Stream::cpu({.name = "weft-comm", .cpu = {}});
  buckets.on_shard = nullptr;
  if (judge.is_wanted()) buckets.on_shard = [&judge](BufferView shard) { judge.look_at(shard); };
  return buckets;
}

// All that can be refused comes before memory is taken.
std::vector<TensorSpec> agreed_specs(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                                     ZeroOptions const& options) {
  check_groups(communicator.rank(), groups, options);
  check_agreement(communicator, groups, options);
  std::vector<TensorSpec> specs = specs_of(groups);
  for (TensorSpec& spec : specs) spec.dtype = options.gradient_dtype.value_or(spec.dtype);
  return specs;
}

// Absent: as the gradients.
std::optional<DataType> parameter_dtype(std::vector<ParameterGroup> const& groups, ZeroOptions const& options) {
  std::vector<TensorSpec> const specs = specs_of(groups);
  return options.gradient_dtype && !specs.empty() ? std::optional(specs.front().dtype) : std::nullopt;
}

}  // namespace

ZeroOptimizer::Impl::Impl(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                          ZeroOptions const& options)
    : communicator_(communicator),
      judge_(options.gradients),
      options_(bucketer_options(options, judge_)),
      zero_gradients_(options.optimizer.zero_gradients),
      parameter_dtype_(parameter_dtype(groups, options)),
      bucketer_(communicator, agreed_specs(communicator, groups, options), options_),
      parameters_(communicator, parameter_plan(), MemoryKind::parameters),
      shards_("ZeroOptimizer", groups, options.optimizer),
      gathers_(communicator, *options_.stream) {
  take_values(groups);
  adopt_plan();
  if (!options_.rebuild) shards_.fix(parameters_);
}

// Parameters lie as their gradients do.
BucketPlan ZeroOptimizer::Impl::parameter_plan() const {
  BucketPlan plan = bucketer_.plan();
  for (Bucket& bucket : plan.buckets) bucket.dtype = parameter_dtype_.value_or(bucket.dtype);
  return plan;
}

void ZeroOptimizer::Impl::take_values(std::vector<ParameterGroup> const& groups) {
  std::size_t index = 0;
  for (ParameterGroup const& group : groups) {
    for (BufferView const& from : group.parameters) {
      if (from.count != 0) std::memcpy(parameters_.tensor(index).data, from.data, from.bytes());
      ++index;
    }
  }
  for (std::size_t b = 0; b < parameters_.bucket_count(); ++b) {
    if (parameters_.bucket(b).count != 0) communicator_.broadcast(parameters_.bucket(b), 0).wait();
  }
}

void ZeroOptimizer::Impl::adopt_plan() {
  shards_.use_plan(parameters_.plan(), communicator_.rank(), communicator_.size());
  gathers_.resize(parameters_.bucket_count());
  updates_.reserve(2 * shards_.pieces().size());
}

ZeroOptimizer::ZeroOptimizer(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                             ZeroOptions const& options)
    : impl_(std::make_unique<Impl>(communicator, groups, options)) {}
ZeroOptimizer::~ZeroOptimizer() = default;
ZeroOptimizer::ZeroOptimizer(ZeroOptimizer&&) noexcept = default;
ZeroOptimizer& ZeroOptimizer::operator=(ZeroOptimizer&&) noexcept = default;

std::size_t ZeroOptimizer::parameter_count() const noexcept {
  return impl_->bucketer().tensor_count();
}
BufferView ZeroOptimizer::parameter(std::size_t index) const {
  return impl_->parameter(index);
}
BufferView ZeroOptimizer::gradient(std::size_t index) const {
  return std::as_const(*impl_).bucketer().gradient(index);
}
std::size_t ZeroOptimizer::generation() const noexcept {
  return impl_->bucketer().generation();
}
void ZeroOptimizer::mark_ready(std::size_t index) {
  impl_->mark_ready(index);
}
void ZeroOptimizer::mark_unused(std::size_t index) {
  impl_->mark_unused(index);
}
bool ZeroOptimizer::has_gradient(std::size_t index) const {
  return std::as_const(*impl_).bucketer().has_gradient(index);
}
void ZeroOptimizer::step(StepInputs const& inputs) {
  impl_->step(inputs);
}
GradientNorm ZeroOptimizer::gradient_norm() const noexcept {
  return impl_->judge().norm();
}
void ZeroOptimizer::reduce() {
  impl_->reduce();
}
ShardRange ZeroOptimizer::shard(std::size_t index) const {
  return impl_->shard("shard", index);
}
BufferView ZeroOptimizer::parameter_shard(std::size_t index) const {
  ShardRange const mine = impl_->shard("parameter_shard", index);
  return parameter(index).slice(mine.first, mine.count);
}
BufferView ZeroOptimizer::gradient_shard(std::size_t index) const {
  ShardRange const mine = impl_->shard("gradient_shard", index);
  return gradient(index).slice(mine.first, mine.count);
}
void ZeroOptimizer::wait_parameter(std::size_t index) {
  impl_->wait_parameter(index);
}
void ZeroOptimizer::wait_parameters() {
  impl_->wait_parameters();
}
std::size_t ZeroOptimizer::group_count() const noexcept {
  return impl_->shards().group_count();
}
OptimizerOptions const& ZeroOptimizer::options(std::size_t group) const {
  return impl_->shards().options(group);
}
void ZeroOptimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < impl_->shards().group_count(); ++group) set_lr(group, lr);
}
void ZeroOptimizer::set_lr(std::size_t group, double lr) {
  impl_->shards().set_lr(group, lr);
}
std::int64_t ZeroOptimizer::step_count() const noexcept {
  return impl_->shards().step_count();
}
void ZeroOptimizer::set_step_count(std::int64_t step) {
  impl_->shards().set_step_count(step);
}
std::span<std::string_view const> ZeroOptimizer::state_names(std::size_t index) const {
  impl_->check_index(index, "state_names");
  return weft::state_names(impl_->shards().options_of(index));
}
std::vector<float> ZeroOptimizer::state(std::size_t index, std::size_t which) {
  return impl_->state(index, which);
}
std::vector<float> ZeroOptimizer::master(std::size_t index) {
  return impl_->master(index);
}
void ZeroOptimizer::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  impl_->set_state(index, which, values);
}
void ZeroOptimizer::set_parameter(std::size_t index, std::span<float const> values) {
  impl_->set_parameter(index, values);
}
std::vector<float> ZeroOptimizer::state_shard(std::size_t index, std::size_t which) const {
  impl_->check_index(index, "state_shard");
  impl_->shards().check_fixed("state_shard", index);
  impl_->shards().check_state("state_shard", index, which);
  return impl_->shards().state(index, which);
}
std::vector<float> ZeroOptimizer::master_shard(std::size_t index) const {
  impl_->check_index(index, "master_shard");
  impl_->shards().check_fixed("master_shard", index);
  return impl_->shards().master(index);
}
void ZeroOptimizer::set_state_shard(std::size_t index, std::size_t which, std::span<float const> values) {
  impl_->check_index(index, "set_state_shard");
  impl_->shards().set_state("set_state_shard", index, which, values);
}
void ZeroOptimizer::set_master_shard(std::size_t index, std::span<float const> values) {
  impl_->set_master_shard(index, values);
}
void ZeroOptimizer::share_parameters() {
  impl_->share_parameters();
}
std::size_t ZeroOptimizer::state_bytes() const noexcept {
  return impl_->shards().state_bytes();
}
std::span<BucketTiming const> ZeroOptimizer::reductions() const noexcept {
  return std::as_const(*impl_).bucketer().timings();
}
std::span<BucketTiming const> ZeroOptimizer::gathers() const noexcept {
  return impl_->gathers().timings();
}
std::span<Interval const> ZeroOptimizer::updates() const noexcept {
  return impl_->updates();
}
BucketPlan const& ZeroOptimizer::plan() const noexcept {
  return std::as_const(*impl_).bucketer().plan();
}
Bucketer& ZeroOptimizer::bucketer() noexcept {
  return impl_->bucketer();
}

}  // namespace weft
