#include "weft/zero_optimizer.hpp"

#include <cstring>

#include "collectives/device_access.hpp"
#include "core/log.hpp"
#include "optim/rule.hpp"
#include "runtime/stream_impl.hpp"
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

// Refuses all that can be refused before memory is taken.
BucketerOptions agreed_options(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                               ZeroOptions const& options) {
  check_groups(communicator.rank(), groups, options);
  check_agreement(communicator, groups, options);
  BucketerOptions buckets = options.buckets;
  buckets.device = device_of(groups);
  buckets.collective = options.stage == ZeroStage::gradients ? BucketCollective::reduce_scatter_and_release
                                                             : BucketCollective::reduce_scatter;
  buckets.on_shard = nullptr;
  // Parameters travel on the gradients' stream, behind them.
  if (buckets.device.type == DeviceType::cpu) {
    buckets.compute.reset();
    if (!buckets.stream) buckets.stream = Stream::cpu({.name = "weft-comm", .cpu = {}});
    return buckets;
  }
  communicator.connect(buckets.device);
  DeviceBackend const& backend = *DeviceAccess::backend(communicator);
  if (!buckets.compute) buckets.compute = backend.default_stream();
  if (!buckets.stream) buckets.stream = backend.make_stream();
  return buckets;
}

std::vector<TensorSpec> gradient_specs(std::vector<ParameterGroup> const& groups, ZeroOptions const& options) {
  std::vector<TensorSpec> specs = specs_of(groups);
  for (TensorSpec& spec : specs) spec.dtype = options.gradient_dtype.value_or(spec.dtype);
  return specs;
}

// Absent where it is the gradients' type.
std::optional<DataType> parameter_dtype(std::vector<ParameterGroup> const& groups, ZeroOptions const& options) {
  std::vector<TensorSpec> const specs = specs_of(groups);
  return options.gradient_dtype && !specs.empty() ? std::optional(specs.front().dtype) : std::nullopt;
}

}  // namespace

ZeroOptimizer::Impl::Impl(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                          ZeroOptions const& options)
    : Core("ZeroOptimizer", groups, options.optimizer, options.gradients),
      communicator_(communicator),
      options_(agreed_options(communicator, groups, options)),
      zero_gradients_(options.optimizer.zero_gradients),
      parameter_dtype_(parameter_dtype(groups, options)),
      bucketer_(communicator, gradient_specs(groups, options), with_judge(options_)),
      parameters_(communicator, parameter_plan(bucketer_.plan()), MemoryKind::parameters, options_.compute),
      gathers_(communicator, *options_.stream, options_.compute, options_.timed) {
  timed_ = options_.timed;
  compute_ = options_.compute;
  shards_.use_device(compute_);
  take_values(groups);
  adopt_plan();
  if (!options_.rebuild) shards_.fix(parameters_);
}

ZeroOptimizer::Impl::~Impl() {
  gathers_.drain(!has_failed());
  if (!compute_) return;
  try {
    compute_->synchronize();  // updates may still use memory that is freed now
  } catch (Error const& error) {
    log(LogLevel::warn, fmt::format("zero optimizer: its last step: {}", error.what()));
  }
}

BucketerOptions ZeroOptimizer::Impl::with_judge(BucketerOptions options) {
  if (!judge_.is_wanted()) return options;
  if (options.compute) {
    options.on_shard = [this](BufferView shard) { look_at(shard); };
  } else {
    options.on_shard = [this](BufferView shard) { judge_.look_at(shard); };
  }
  return options;
}

// Parameters are laid out like their gradients.
BucketPlan ZeroOptimizer::Impl::parameter_plan(BucketPlan plan) const {
  for (Bucket& bucket : plan.buckets) bucket.dtype = parameter_dtype_.value_or(bucket.dtype);
  return plan;
}

void ZeroOptimizer::Impl::take_values(std::vector<ParameterGroup> const& groups) {
  std::size_t index = 0;
  for (ParameterGroup const& group : groups) {
    for (BufferView const& from : group.parameters) {
      BufferView const to = parameters_.tensor(index++);
      if (from.count == 0) continue;
      if (compute_) {
        compute_->impl().copy(to.data, from.data, from.bytes());
      } else {
        std::memcpy(to.data, from.data, from.bytes());
      }
    }
  }
  CollectiveOptions const how{compute_, {}};
  for (std::size_t b = 0; b < parameters_.bucket_count(); ++b) {
    if (parameters_.bucket(b).count != 0) communicator_.broadcast(parameters_.bucket(b), 0, how).wait();
  }
}

void ZeroOptimizer::Impl::adopt_plan() {
  shards_.use_plan(parameters_.plan(), communicator_.rank(), communicator_.size());
  gathers_.use(parameters_.plan());
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
void ZeroOptimizer::reconfigure(BucketSettings const& settings) {
  impl().reconfigure(settings);
}
BucketSettings ZeroOptimizer::bucket_settings() const noexcept {
  return std::as_const(impl()).bucketer().settings();
}
bool ZeroOptimizer::may_move_shards() const noexcept {
  return impl().may_move_shards();
}
std::span<BucketTiming const> ZeroOptimizer::reductions() const noexcept {
  return std::as_const(impl()).bucketer().timings();
}
std::span<BucketTiming const> ZeroOptimizer::gathers() const noexcept {
  return impl().gathers().timings();
}
std::vector<BucketTiming> ZeroOptimizer::reductions_since(Event const& origin,
                                                          std::chrono::steady_clock::time_point at) const {
  return impl().bucketer().timings_since(origin, at);
}
std::vector<BucketTiming> ZeroOptimizer::gathers_since(Event const& origin,
                                                       std::chrono::steady_clock::time_point at) const {
  return impl().gathers().timings_since(origin, at);
}
BucketPlan const& ZeroOptimizer::plan() const noexcept {
  return std::as_const(impl()).bucketer().plan();
}
Bucketer& ZeroOptimizer::bucketer() noexcept {
  return impl().bucketer();
}

}  // namespace weft
