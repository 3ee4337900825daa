#include "sharding/piece_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "optim/rule.hpp"
#include "optim/step_inputs.hpp"
#include "sharding/device_values.hpp"
#include "weft/error.hpp"

namespace weft {

PieceOptimizer::PieceOptimizer(char const* who, std::vector<ParameterGroup> const& groups,
                               OptimizerSettings const& settings)
    : who_(who), settings_(settings) {
  for (ParameterGroup const& group : groups) {
    group_of_.insert(group_of_.end(), group.parameters.size(), options_.size());
    options_.push_back(group.options);
  }
}

PieceOptimizer PieceOptimizer::unfixed() const {
  PieceOptimizer other(who_, {}, settings_);
  other.group_of_ = group_of_;
  other.options_ = options_;
  other.compute_ = compute_;
  other.first_step_ = step_count();
  return other;
}

void PieceOptimizer::use_plan(BucketPlan const& plan, int rank, int ranks) {
  bucket_of_.assign(group_of_.size(), 0);
  shards_.assign(group_of_.size(), {});
  offsets_.assign(group_of_.size(), 0);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (BucketSlot const& slot : plan.buckets[b].slots) bucket_of_[slot.tensor] = b;
  }
  pieces_ = pieces_of(plan, rank, ranks);
  for (ShardPiece const& piece : pieces_) {
    shards_[piece.tensor] = {piece.first, piece.count};
    offsets_[piece.tensor] = piece.offset;
  }
  by_bucket_.clear();
  auto first = pieces_.cbegin();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    auto const last = std::find_if(first, pieces_.cend(), [b](ShardPiece const& piece) { return piece.bucket != b; });
    by_bucket_.emplace_back(first, last);
    first = last;
  }
}

void PieceOptimizer::fix(BucketStorage const& parameters) {
  std::vector<BufferView> views;
  for (ShardPiece const& piece : pieces_) {
    views.push_back(parameters.tensor(piece.tensor).slice(piece.first, piece.count));
  }
  fix(views);
}

void PieceOptimizer::fix(std::span<BufferView const> pieces) {
  std::vector<ParameterGroup> groups;
  for (OptimizerOptions const& options : options_) groups.push_back({{}, options});
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    groups[group_of_[pieces_[p].tensor]].parameters.push_back(pieces[p]);
  }
  // The Optimizer numbers its parameters over all groups; within a group pieces keep their order.
  std::vector<std::size_t> next(groups.size(), 0);
  for (std::size_t g = 1; g < groups.size(); ++g) next[g] = next[g - 1] + groups[g - 1].parameters.size();
  optimized_as_.assign(group_of_.size(), kNone);
  for (ShardPiece const& piece : pieces_) optimized_as_[piece.tensor] = next[group_of_[piece.tensor]]++;
  // A rank that owns nothing needs an Optimizer on the GPU too, which reads its inputs there.
  if (compute_ && pieces_.empty() && !groups.empty()) {
    groups.front().parameters.push_back({nullptr, 0, DataType::f32, compute_->device()});
  }
  optimizer_.emplace(groups, settings_);
  indices_.reserve(pieces_.size());
  places_.reserve(pieces_.size());
  optimizer_->set_step_count(first_step_);
}

void PieceOptimizer::update(std::span<ShardPiece const> pieces, std::span<BufferView const> gradients) {
  indices_.clear();
  for (ShardPiece const& piece : pieces) indices_.push_back(index_of(piece));
  optimizer_->update(indices_, gradients);
}

void PieceOptimizer::note_places(std::span<ShardPiece const> pieces) {
  indices_.clear();
  places_.clear();
  for (ShardPiece const& piece : pieces) {
    indices_.push_back(index_of(piece));
    places_.push_back(piece.tensor);
  }
}

void PieceOptimizer::update_moments(std::span<ShardPiece const> pieces, std::span<BufferView const> gradients,
                                    BufferView norms) {
  note_places(pieces);
  optimizer_->update_moments(indices_, gradients, places_, norms);
}

void PieceOptimizer::apply(std::span<ShardPiece const> pieces, BufferView norms) {
  note_places(pieces);
  optimizer_->apply(indices_, places_, norms);
}

void PieceOptimizer::check_group(char const* call, std::size_t group) const {
  if (group < options_.size()) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}::{}: group {} of {}", who_, call, group, options_.size()));
}

OptimizerOptions const& PieceOptimizer::options(std::size_t group) const {
  check_group("options", group);
  return options_[group];
}

void PieceOptimizer::set_lr(std::size_t group, double lr) {
  check_group("set_lr", group);
  weft::set_lr(options_[group], lr);
  if (optimizer_) optimizer_->set_lr(group, lr);
}

void PieceOptimizer::set_options(std::size_t group, OptimizerOptions const& options) {
  check_group("set_options", group);
  check_change(fmt::format("{}::set_options", who_), group, options_[group], options);
  options_[group] = options;
  if (optimizer_) optimizer_->set_options(group, options);
}

void PieceOptimizer::set_step_count(std::int64_t step) {
  check_step_count(fmt::format("{}::set_step_count", who_).c_str(), step);
  first_step_ = step;
  if (optimizer_) optimizer_->set_step_count(step);
}

bool PieceOptimizer::needs_norms() const noexcept {
  return std::any_of(options_.begin(), options_.end(), [](auto const& one) { return weft::needs_norms(one); });
}

void PieceOptimizer::check_fixed(char const* call, std::optional<std::size_t> index) const {
  if (optimizer_) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}::{}: shards may still move; construct with options.buckets.rebuild = false to "
                          "reach them before the first step{}",
                          who_, call, index ? fmt::format(" (parameter {})", *index) : ""));
}

void PieceOptimizer::check_state(char const* call, std::size_t index, std::size_t which) const {
  std::size_t const states = state_names(options_of(index)).size();
  if (which < states) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}::{}: state {} of parameter {}, which has {}", who_, call, which, index, states));
}

void PieceOptimizer::check_count(char const* call, std::size_t index, std::size_t count) const {
  if (count == shards_[index].count) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}::{}: {} elements for this rank's {} of parameter {}", who_,
                                                       call, count, shards_[index].count, index));
}

std::vector<float> PieceOptimizer::state(std::size_t index, std::size_t which) const {
  if (shards_[index].count == 0) return {};
  return optimizer_->state(optimized_as_[index], which);
}

void PieceOptimizer::set_state(char const* call, std::size_t index, std::size_t which, std::span<float const> values) {
  check_fixed(call, index);
  check_state(call, index, which);
  check_count(call, index, values.size());
  if (!values.empty()) optimizer_->set_state(optimized_as_[index], which, values);
}

std::vector<float> PieceOptimizer::master(std::size_t index) const {
  if (shards_[index].count == 0) return {};
  return read_values(optimizer_->master(optimized_as_[index]), compute_);
}

void PieceOptimizer::set_master(char const* call, std::size_t index, std::span<float const> values) {
  check_fixed(call, index);
  check_count(call, index, values.size());
  if (values.empty()) return;
  BufferView const master = optimizer_->master(optimized_as_[index]);
  BufferView const parameter = optimizer_->parameter(optimized_as_[index]);
  write_values(values, master, compute_);
  if (parameter.data != master.data) write_values(values, parameter, compute_);
}

}  // namespace weft
