#include "weft/fully_sharded.hpp"

#include <fmt/format.h>

#include <string>

#include "collectives/device_access.hpp"
#include "core/log.hpp"
#include "optim/rule.hpp"
#include "sharding/facts.hpp"
#include "sharding/flat_memory.hpp"
#include "sharding/fully_sharded_agreement.hpp"
#include "sharding/fully_sharded_impl.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void check_cap(UnitLayout const& layout, std::size_t gather_cap) {
  for (PlannedUnit const& unit : layout.planned()) {
    if (unit.bytes <= gather_cap / kCacheLine * kCacheLine) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("fully sharded: unit '{}' is {} bytes gathered, more than gather_cap, {}", unit.name,
                            unit.bytes, gather_cap));
  }
}

void check_cap(std::vector<ShardedUnit> const& units, FullyShardedOptions const& options, int ranks) {
  bool const gathers = ShardGroups::checked_shard_size(ranks, options) > 1;
  if (!gathers || options.gather_cap == 0) return;
  check_cap(UnitLayout(units, options, static_cast<std::size_t>(ranks)), options.gather_cap);
}

// Refuses all that can be refused before memory is taken.
ShardGroups agreed_groups(Communicator& world, std::vector<ShardedUnit> const& units,
                          FullyShardedOptions const& options) {
  check_units(world.rank(), units, options);
  check_cap(units, options, world.size());
  check_agreement(world, units, options);
  return {world, options, device_of(units)};
}

ComputeSide side_of(ShardGroups const& groups, std::vector<ShardedUnit> const& units,
                    FullyShardedOptions const& options) {
  if (device_of(units).type == DeviceType::cpu) return ComputeSide();
  return ComputeSide(options.compute ? *options.compute : DeviceAccess::backend(groups.gathers)->default_stream());
}

// A stream of its own, where the caller gives none.
Stream stream_for(Communicator const& communicator, std::optional<Stream> const& given, ComputeSide const& side,
                  char const* name) {
  if (given) return *given;
  return side.is_gpu() ? DeviceAccess::backend(communicator)->make_stream() : Stream::cpu({.name = name, .cpu = {}});
}

std::vector<ParameterGroup> groups_of(std::vector<ShardedUnit> const& units) {
  std::vector<ParameterGroup> groups;
  for (ShardedUnit const& unit : units) groups.insert(groups.end(), unit.groups.begin(), unit.groups.end());
  return groups;
}

GatherPolicy policy_for(UnitLayout const& layout, GatherSettings const& settings) {
  GatherPolicy policy{settings.gather_cap / kCacheLine * kCacheLine, settings.prefetch, settings.reshard_after_forward};
  if (settings.gather_cap == 0) policy.capacity = capacity_for(layout.planned(), policy);
  return policy;
}

UnitGatherer::Options gatherer_options(ShardGroups const& groups, UnitLayout const& layout,
                                       FullyShardedOptions const& options, GatherSettings const& settings,
                                       ComputeSide const& side) {
  return {policy_for(layout, settings), stream_for(groups.gathers, options.gather_stream, side, "weft-gather"),
          options.poison, side, options.timed};
}

UnitReducer::Options reducer_options(ShardGroups const& groups, FullyShardedOptions const& options,
                                     ComputeSide const& side, std::function<void(std::size_t)> on_shard) {
  return {options.gradient_units,
          options.gradient_cap,
          stream_for(groups.reductions, options.reduce_stream, side, "weft-reduce"),
          options.poison,
          std::move(on_shard),
          side,
          options.timed};
}

}  // namespace

FullySharded::Impl::Impl(Communicator& world, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options)
    : Core("FullySharded", groups_of(units), options.optimizer, options.gradients),
      groups_(agreed_groups(world, units, options)),
      layout_(units, options, static_cast<std::size_t>(world.size())),
      side_(side_of(groups_, units, options)),
      presence_(options.unused, layout_.parameter_count()),
      written_(layout_.parameter_count()),
      unused_(layout_.parameter_count()),
      scaler_(options.gradients.scaler),
      gather_settings_{options.prefetch, options.gather_cap, options.reshard_after_forward},
      gatherer_(groups_.gathers, layout_, gatherer_options(groups_, layout_, options, gather_settings_, side_)),
      reducer_(groups_, layout_, reducer_options(groups_, options, side_, on_shard())),
      units_(units.size()),
      updated_(units.size()) {
  compute_ = side_.stream();
  timed_ = compute_ && options.timed;
  shards_.use_device(compute_);
  shards_.use_plan(layout_.plan(), groups_.shard_rank, groups_.shard_size);
  std::vector<BufferView> views;
  for (ShardPiece const& piece : shards_.pieces()) views.push_back(piece_of(piece, gatherer_.shard(piece.bucket)));
  shards_.fix(views);
  if (compute_ && judge_.is_wanted()) device_judge_.emplace(policy_, gradient_shards(), compute_->device());
  judged_.resize(views.size());
  updates_.reserve(units.size() + views.size() + 1);
  take_values(world, units, options);
}

FullySharded::Impl::~Impl() {
  bool const arrived = gatherer_.drain(!has_failed());
  reducer_.drain(!has_failed() && arrived);  // one cause is logged once
  if (!compute_) return;
  try {
    compute_->synchronize();  // it may still use memory that is freed now
  } catch (Error const& error) {
    log(LogLevel::warn, fmt::format("fully sharded: its last step: {}", error.what()));
  }
}

GatherPolicy FullySharded::Impl::policy_of(GatherSettings const& settings) const {
  return policy_for(layout_, settings);
}

void FullySharded::Impl::reconfigure(GatherSettings const& settings) {
  check_usable();
  check_idle("reconfigure");
  if (compute_) {
    throw Error(ErrorCode::unsupported, "FullySharded::reconfigure: on a GPU settings stay as they are so far");
  }
  if (gathers() && settings.gather_cap != 0) check_cap(layout_, settings.gather_cap);
  auto const difference =
      first_difference(groups_.gathers,
                       {{"prefetch", std::to_string(settings.prefetch)},
                        {"gather_cap", std::to_string(settings.gather_cap)},
                        {"reshard_after_forward", settings.reshard_after_forward ? "true" : "false"}},
                       groups_.world_ranks(groups_.gathers));
  if (difference) {
    throw Error(ErrorCode::mismatch,
                fmt::format("FullySharded::reconfigure: {}; pass the same on every rank", *difference));
  }
  if (settings == gather_settings_) return;
  gatherer_.use(policy_of(settings));
  gather_settings_ = settings;
}

FullyShardedMemory FullySharded::Impl::memory() const noexcept {
  return {gatherer_.shard_bytes(), reducer_.shard_bytes(), shards_.state_bytes(),
          gatherer_.pool_bytes(),  reducer_.pool_bytes(),  reducer_.held_bytes()};
}

FullySharded::FullySharded(Communicator& world, std::vector<ShardedUnit> const& units,
                           FullyShardedOptions const& options)
    : ShardedOptimizer(std::make_unique<Impl>(world, units, options)) {}
FullySharded::~FullySharded() = default;
FullySharded::FullySharded(FullySharded&&) noexcept = default;
FullySharded& FullySharded::operator=(FullySharded&&) noexcept = default;
FullySharded::Impl& FullySharded::impl() const noexcept {
  return static_cast<Impl&>(core());
}

std::size_t FullySharded::unit_count() const noexcept {
  return impl().layout().unit_count();
}
std::size_t FullySharded::unit_of(std::size_t index) const {
  impl().check_index(index, "unit_of");
  return impl().layout().place(index).unit;
}
void FullySharded::before_forward(std::size_t unit) {
  impl().before({unit, Phase::forward});
}
void FullySharded::before_backward(std::size_t unit) {
  impl().before({unit, Phase::backward});
}
void FullySharded::after_forward(std::size_t unit) {
  impl().after({unit, Phase::forward});
}
void FullySharded::after_backward(std::size_t unit) {
  impl().after({unit, Phase::backward});
}
BufferView FullySharded::parameter(std::size_t index) const {
  return impl().parameter(index);
}
BufferView FullySharded::gradient(std::size_t index) const {
  return impl().gradient(index);
}
bool FullySharded::holds_gradients(std::size_t unit) const {
  return impl().holds_gradients(unit);
}
void FullySharded::mark_unused(std::size_t index) {
  impl().mark_unused(index);
}
bool FullySharded::has_gradient(std::size_t index) const {
  return impl().has_gradient(index);
}
void FullySharded::step(StepInputs const& inputs) {
  impl().step(inputs);
}
void FullySharded::reduce() {
  impl().reduce();
}
GradientNorm FullySharded::measure_gradients(NormType type, float factor) {
  return impl().measure_gradients(type, factor);
}
void FullySharded::wait_gathers() {
  impl().wait_gathers();
}
bool FullySharded::set_sync(bool sync) {
  return impl().set_sync(sync);
}
void FullySharded::reconfigure(GatherSettings const& settings) {
  impl().reconfigure(settings);
}
GatherSettings FullySharded::gather_settings() const noexcept {
  return impl().gather_settings();
}
bool FullySharded::is_on_gpu() const noexcept {
  return impl().is_on_gpu();
}
std::size_t FullySharded::gathered_bytes_under(GatherSettings const& settings) const {
  return impl().gathers() ? impl().policy_of(settings).capacity : 0;
}
FullyShardedMemory FullySharded::memory() const noexcept {
  return impl().memory();
}
std::size_t FullySharded::gathered_bytes() const noexcept {
  return impl().gatherer().planner().live_bytes();
}
std::size_t FullySharded::peak_gathered_bytes() const noexcept {
  return impl().gatherer().planner().peak_bytes();
}
std::span<BucketTiming const> FullySharded::gathers() const noexcept {
  return impl().gatherer().timings();
}
std::span<BucketTiming const> FullySharded::reductions() const noexcept {
  return impl().reducer().timings();
}
std::vector<BucketTiming> FullySharded::gathers_since(Event const& origin,
                                                      std::chrono::steady_clock::time_point at) const {
  return impl().gatherer().timings_since(origin, at);
}
std::vector<BucketTiming> FullySharded::reductions_since(Event const& origin,
                                                         std::chrono::steady_clock::time_point at) const {
  return impl().reducer().timings_since(origin, at);
}

}  // namespace weft
