#include "weft/sharded_optimizer.hpp"

#include <utility>

#include "optim/rule.hpp"
#include "sharding/sharded_core.hpp"

namespace weft {

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ShardedOptimizer::~ShardedOptimizer() = default;
ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer& ShardedOptimizer::operator=(ShardedOptimizer&&) noexcept = default;

std::size_t ShardedOptimizer::parameter_count() const noexcept {
  return core_->shards().parameter_count();
}
std::size_t ShardedOptimizer::element_count(std::size_t index) const {
  core_->check_index(index, "element_count");
  return core_->element_count(index);
}
ShardRange ShardedOptimizer::shard(std::size_t index) const {
  return core_->fixed_shard(index, "shard");
}
BufferView ShardedOptimizer::parameter_shard(std::size_t index) const {
  static_cast<void>(core_->fixed_shard(index, "parameter_shard"));
  return core_->parameter_shard(index);
}
BufferView ShardedOptimizer::gradient_shard(std::size_t index) const {
  static_cast<void>(core_->fixed_shard(index, "gradient_shard"));
  return core_->gradient_shard(index);
}
std::vector<BufferView> ShardedOptimizer::gradient_shards() const {
  core_->shards().check_fixed("gradient_shards");
  return core_->gradient_shards();
}
std::size_t ShardedOptimizer::group_count() const noexcept {
  return core_->shards().group_count();
}
OptimizerOptions const& ShardedOptimizer::options(std::size_t group) const {
  return core_->shards().options(group);
}
void ShardedOptimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < group_count(); ++group) set_lr(group, lr);
}
void ShardedOptimizer::set_lr(std::size_t group, double lr) {
  core_->shards().set_lr(group, lr);
}
void ShardedOptimizer::set_options(std::size_t group, OptimizerOptions const& options) {
  core_->shards().set_options(group, options);
}
std::int64_t ShardedOptimizer::step_count() const {
  return core_->shards().step_count();
}
void ShardedOptimizer::set_step_count(std::int64_t step) {
  core_->shards().set_step_count(step);
}
GradientNorm ShardedOptimizer::gradient_norm() const {
  return core_->norm();
}
std::span<Interval const> ShardedOptimizer::updates() const noexcept {
  return core_->updates();
}
std::vector<Interval> ShardedOptimizer::updates_since(Event const& origin,
                                                      std::chrono::steady_clock::time_point at) const {
  return core_->updates_since(origin, at);
}
std::span<std::string_view const> ShardedOptimizer::state_names(std::size_t index) const {
  core_->check_index(index, "state_names");
  return weft::state_names(core_->shards().options_of(index));
}
std::vector<float> ShardedOptimizer::state(std::size_t index, std::size_t which) {
  return core_->state(index, which);
}
std::vector<float> ShardedOptimizer::master(std::size_t index) {
  return core_->master(index);
}
void ShardedOptimizer::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  core_->set_state(index, which, values);
}
void ShardedOptimizer::set_parameter(std::size_t index, std::span<float const> values) {
  core_->set_parameter(index, values);
}
std::vector<float> ShardedOptimizer::state_shard(std::size_t index, std::size_t which) const {
  return core_->state_shard(index, which);
}
std::vector<float> ShardedOptimizer::master_shard(std::size_t index) const {
  return core_->master_shard(index);
}
void ShardedOptimizer::set_state_shard(std::size_t index, std::size_t which, std::span<float const> values) {
  core_->set_state_shard(index, which, values);
}
void ShardedOptimizer::set_master_shard(std::size_t index, std::span<float const> values) {
  core_->set_master_shard(index, values);
}
void ShardedOptimizer::share_parameters() {
  core_->share_parameters();
}
void ShardedOptimizer::check_step() {
  core_->check_step();
}
std::size_t ShardedOptimizer::state_bytes() const noexcept {
  return core_->shards().state_bytes();
}

}  // namespace weft
