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
    : Core("ZeroOptimizer", groups, options.optimizer, options.gradients),
      communicator_(communicator),
      options_(bucketer_options(options, judge_)),
      zero_gradients_(options.optimizer.zero_gradients),
      parameter_dtype_(parameter_dtype(groups, options)),
      bucketer_(communicator, agreed_specs(communicator, groups, options), options_),
      parameters_(communicator, parameter_plan(), MemoryKind::parameters),
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
    : ShardedOptimizer(std::make_unique<Impl>(communicator, groups, options)) {}
ZeroOptimizer::~ZeroOptimizer() = default;
ZeroOptimizer::ZeroOptimizer(ZeroOptimizer&&) noexcept = default;
ZeroOptimizer& ZeroOptimizer::operator=(ZeroOptimizer&&) noexcept = default;
ZeroOptimizer::Impl& ZeroOptimizer::impl() const noexcept {
  return static_cast<Impl&>(core());
}

BufferView ZeroOptimizer::parameter(std::size_t index) const {
  return impl().parameter(index);
}
BufferView ZeroOptimizer::gradient(std::size_t index) const {
  return std::as_const(impl()).bucketer().gradient(index);
}
std::size_t ZeroOptimizer::generation() const noexcept {
  return impl().bucketer().generation();
}
void ZeroOptimizer::mark_ready(std::size_t index) {
  impl().mark_ready(index);
}
void ZeroOptimizer::mark_unused(std::size_t index) {
  impl().mark_unused(index);
}
bool ZeroOptimizer::has_gradient(std::size_t index) const {
  return std::as_const(impl()).bucketer().has_gradient(index);
}
void ZeroOptimizer::step(StepInputs const& inputs) {
  impl().step(inputs);
}
void ZeroOptimizer::reduce() {
  impl().reduce();
}
void ZeroOptimizer::wait_parameter(std::size_t index) {
  impl().wait_parameter(index);
}
void ZeroOptimizer::wait_parameters() {
  impl().wait_parameters();
}
std::span<BucketTiming const> ZeroOptimizer::reductions() const noexcept {
  return std::as_const(impl()).bucketer().timings();
}
std::span<BucketTiming const> ZeroOptimizer::gathers() const noexcept {
  return impl().gathers().timings();
}
BucketPlan const& ZeroOptimizer::plan() const noexcept {
  return std::as_const(impl()).bucketer().plan();
}
Bucketer& ZeroOptimizer::bucketer() noexcept {
  return impl().bucketer();
}

}  // namespace weft
