#include "weft/zero_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "bucketing/bucket_storage.hpp"
#include "core/log.hpp"
#include "optim/rule.hpp"
#include "sharding/shard_pieces.hpp"
#include "sharding/zero_agreement.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<TensorSpec> specs_of(std::vector<ParameterGroup> const& groups) {
  std::vector<TensorSpec> specs;
  for (ParameterGroup const& group : groups) {
    for (BufferView const& parameter : group.parameters) specs.push_back({parameter.count, parameter.dtype});
  }
  return specs;
}

BucketerOptions bucketer_options(ZeroOptions const& options) {
  BucketerOptions buckets = options.buckets;
  buckets.collective = options.stage == ZeroStage::gradients ? BucketCollective::reduce_scatter_and_release
                                                             : BucketCollective::reduce_scatter;
  // Parameters travel on the gradients' stream, behind them.
  if (!buckets.stream) buckets.stream = Stream::cpu({.name = "weft-comm", .cpu = {}});
  return buckets;
}

// All that can be refused comes before memory is taken.
std::vector<TensorSpec> agreed_specs(Communicator& communicator, std::vector<ParameterGroup> const& groups,
                                     ZeroOptions const& options) {
  check_groups(communicator.rank(), groups, options);
  check_agreement(communicator, groups, options);
  return specs_of(groups);
}

}  // namespace

class ZeroOptimizer::Impl {
 public:
  Impl(Communicator& communicator, std::vector<ParameterGroup> const& groups, ZeroOptions const& options)
      : communicator_(communicator),
        settings_(options.optimizer),
        options_(bucketer_options(options)),
        bucketer_(communicator, agreed_specs(communicator, groups, options), options_),
        parameters_(communicator, bucketer_.plan()) {
    for (ParameterGroup const& group : groups) {
      group_of_.insert(group_of_.end(), group.parameters.size(), group_options_.size());
      group_options_.push_back(group.options);
    }
    take_values(groups);
    adopt_plan();
    if (!options_.rebuild) make_optimizer();
  }

  ~Impl() {
    for (Work const& gather : gathers_) {
      try {
        gather.wait();
      } catch (std::exception const& error) {
        if (!failure_) log(LogLevel::warn, fmt::format("zero optimizer: destroyed too early: {}", error.what()));
      }
    }
  }

  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  [[nodiscard]] Bucketer& bucketer() noexcept { return bucketer_; }
  [[nodiscard]] Bucketer const& bucketer() const noexcept { return bucketer_; }
  [[nodiscard]] BufferView parameter(std::size_t index) const {
    check_index(index, "parameter");
    return parameters_.tensor(index);
  }
  [[nodiscard]] ShardRange shard(std::size_t index) const {
    check_index(index, "shard");
    return shards_[index];
  }

  void mark_ready(std::size_t index) {
    if (reduced_) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("ZeroOptimizer::mark_ready({}): gradients are reduced; call step() first", index));
    }
    bucketer_.mark_ready(index);
  }
  void reduce();
  void step(StepInputs const& inputs);
  void wait_parameter(std::size_t index);
  void wait_parameters();

  [[nodiscard]] OptimizerOptions const& options(std::size_t group) const { return group_options_.at(group); }
  void set_lr(std::size_t group, double lr) {
    weft::set_lr(group_options_.at(group), lr);
    if (optimizer_) optimizer_->set_lr(group, lr);
  }
  [[nodiscard]] std::size_t group_count() const noexcept { return group_options_.size(); }
  [[nodiscard]] std::int64_t step_count() const noexcept { return optimizer_ ? optimizer_->step_count() : first_step_; }
  void set_step_count(std::int64_t step) noexcept {
    first_step_ = step;
    if (optimizer_) optimizer_->set_step_count(step);
  }

  [[nodiscard]] std::size_t state_count(std::size_t index) const { return names_of(index).size(); }
  [[nodiscard]] std::span<std::string_view const> names_of(std::size_t index) const;
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which);
  void set_state(std::size_t index, std::size_t which, std::span<float const> values);
  [[nodiscard]] std::size_t state_bytes() const noexcept { return optimizer_ ? optimizer_->state_bytes() : 0; }

  [[nodiscard]] std::span<BucketTiming const> gather_timings() const noexcept { return gather_timings_; }
  [[nodiscard]] std::span<Interval const> updates() const noexcept { return updates_; }

 private:
  void take_values(std::vector<ParameterGroup> const& groups);
  void adopt_plan();
  void make_optimizer();
  void launch_reductions();
  void update_shards();
  void update_with_norms();
  void zero_rest();
  void launch_gathers();
  void wait_for_gather(std::size_t bucket) const;
  [[nodiscard]] BufferView gradient_of(ShardPiece const& piece) const {
    return bucketer_.gradient(piece.tensor).slice(piece.first, piece.count);
  }
  void wait_for_gradient(ShardPiece const& piece) {
    if (!reduced_) bucketer_.wait(piece.tensor);
  }
  void check_index(std::size_t index, char const* call) const {
    if (index < group_of_.size()) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ZeroOptimizer::{}: index {} of {} parameters", call, index, group_of_.size()));
  }
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  template <typename Action>
  void guarded(Action&& action);

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  Communicator& communicator_;
  OptimizerSettings settings_;
  BucketerOptions options_;
  std::vector<std::size_t> group_of_;  ///< by parameter
  std::vector<OptimizerOptions> group_options_;
  Bucketer bucketer_;
  BucketStorage parameters_;
  std::vector<std::size_t> bucket_of_;     ///< by parameter
  std::vector<ShardRange> shards_;         ///< by parameter
  std::vector<ShardPiece> pieces_;         ///< in plan order
  std::optional<Optimizer> optimizer_;     ///< of the pieces; none before shards are fixed
  std::vector<std::size_t> optimized_as_;  ///< by parameter: its piece's index in optimizer_, or kNone
  std::vector<Work> gathers_;              ///< by bucket
  std::vector<BucketTiming> gather_timings_;
  std::vector<Interval> updates_;
  std::int64_t first_step_ = 0;
  Clock::time_point updated_;   ///< when the gathers under way were launched
  bool reduced_ = false;        ///< reduce() came, step() did not
  bool gathering_ = false;      ///< some gather has not been waited for
  std::exception_ptr failure_;  ///< why this is of no more use
};

// Other ranks may have got further or less far than this one.
template <typename Action>
void ZeroOptimizer::Impl::guarded(Action&& action) {
  try {
    action();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
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
  BucketPlan const& plan = parameters_.plan();
  bucket_of_.assign(group_of_.size(), 0);
  shards_.assign(group_of_.size(), {});
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (BucketSlot const& slot : plan.buckets[b].slots) bucket_of_[slot.tensor] = b;
  }
  pieces_ = pieces_of(plan, communicator_.rank(), communicator_.size());
  for (ShardPiece const& piece : pieces_) shards_[piece.tensor] = {piece.first, piece.count};
  gathers_.assign(plan.buckets.size(), Work());
  gather_timings_.reserve(plan.buckets.size());
  updates_.reserve(2 * pieces_.size());
}

void ZeroOptimizer::Impl::make_optimizer() {
  std::vector<ParameterGroup> groups;
  for (OptimizerOptions const& options : group_options_) groups.push_back({{}, options});
  for (ShardPiece const& piece : pieces_) {
    groups[group_of_[piece.tensor]].parameters.push_back(
        parameters_.tensor(piece.tensor).slice(piece.first, piece.count));
  }
  // The Optimizer counts over all groups, in each of which pieces keep their order.
  std::vector<std::size_t> next(groups.size(), 0);
  for (std::size_t g = 1; g < groups.size(); ++g) next[g] = next[g - 1] + groups[g - 1].parameters.size();
  optimized_as_.assign(group_of_.size(), kNone);
  for (ShardPiece const& piece : pieces_) optimized_as_[piece.tensor] = next[group_of_[piece.tensor]]++;
  optimizer_.emplace(groups, settings_);
  optimizer_->set_step_count(first_step_);
}

void ZeroOptimizer::Impl::launch_reductions() {
  std::size_t const generation = bucketer_.generation();
  bucketer_.finish_launching();
  if (bucketer_.generation() != generation) {
    BucketStorage moved(communicator_, bucketer_.plan());
    moved.copy_tensors_from(parameters_);
    parameters_ = std::move(moved);
    adopt_plan();
  }
  if (!optimizer_) make_optimizer();
}

void ZeroOptimizer::Impl::reduce() {
  check_usable();
  if (reduced_ || !bucketer_.sync()) return;
  guarded([this] {
    wait_parameters();
    launch_reductions();
    bucketer_.finish();
  });
  reduced_ = true;
}

void ZeroOptimizer::Impl::step(StepInputs const& inputs) {
  check_usable();
  if (!bucketer_.sync()) return bucketer_.finish();
  guarded([&] {
    if (!reduced_) {
      wait_parameters();
      launch_reductions();
      if (!options_.overlap) {
        bucketer_.finish();
        reduced_ = true;
      }
    }
    optimizer_->begin_step(inputs);
    updates_.clear();
    bool const norms = std::any_of(group_options_.begin(), group_options_.end(),
                                   [](auto const& one) { return std::holds_alternative<LambOptions>(one); });
    if (norms) {
      update_with_norms();
    } else {
      update_shards();
    }
    if (!reduced_) bucketer_.finish();
    if (settings_.zero_gradients) zero_rest();
    launch_gathers();
    if (!options_.overlap) wait_parameters();
  });
  reduced_ = false;
}

void ZeroOptimizer::Impl::update_shards() {
  for (std::size_t p = 0; p < pieces_.size();) {
    wait_for_gradient(pieces_[p]);
    Clock::time_point const start = Clock::now();
    std::size_t const bucket = pieces_[p].bucket;
    for (; p < pieces_.size() && pieces_[p].bucket == bucket; ++p) {
      optimizer_->update(optimized_as_[pieces_[p].tensor], gradient_of(pieces_[p]));
    }
    updates_.push_back({start, Clock::now()});
  }
}

// Lamb scales a whole tensor by its norms, and its parts are on several ranks.
void ZeroOptimizer::Impl::update_with_norms() {
  std::vector<double> norms(2 * group_of_.size(), 0);
  for (ShardPiece const& piece : pieces_) {
    wait_for_gradient(piece);
    Clock::time_point const start = Clock::now();
    auto const part = optimizer_->update_moments(optimized_as_[piece.tensor], gradient_of(piece));
    norms[2 * piece.tensor] = part.parameter;
    norms[2 * piece.tensor + 1] = part.direction;
    updates_.push_back({start, Clock::now()});
  }
  std::span<double> const view(norms);
  communicator_.all_reduce(view, view, ReduceOp::sum, {options_.stream, {}}).wait();
  Clock::time_point const start = Clock::now();
  for (ShardPiece const& piece : pieces_) {
    optimizer_->apply(optimized_as_[piece.tensor], {norms[2 * piece.tensor], norms[2 * piece.tensor + 1]});
  }
  updates_.push_back({start, Clock::now()});
}

// The updates have zeroed what this rank owns.
void ZeroOptimizer::Impl::zero_rest() {
  if (options_.collective == BucketCollective::reduce_scatter_and_release) return;  // zeros already
  for (std::size_t i = 0; i < group_of_.size(); ++i) {
    BufferView const whole = bucketer_.gradient(i);
    ShardRange const mine = shards_[i];
    std::size_t const end = mine.first + mine.count;
    if (whole.count == 0) continue;
    std::memset(whole.data, 0, mine.first * size_of(whole.dtype));
    BufferView const behind = whole.slice(end, whole.count - end);
    std::memset(behind.data, 0, behind.bytes());
  }
}

// From the last bucket on: backward finished it last, so the next forward needs it first.
void ZeroOptimizer::Impl::launch_gathers() {
  updated_ = Clock::now();
  gathering_ = true;
  for (std::size_t b = parameters_.bucket_count(); b-- > 0;) {
    BufferView const whole = parameters_.bucket(b);
    if (whole.count == 0) continue;
    BufferView const mine = parameters_.shard(b, communicator_.rank(), communicator_.size());
    gathers_[b] = communicator_.all_gather(mine, whole, {options_.stream, {}});
  }
}

void ZeroOptimizer::Impl::wait_for_gather(std::size_t bucket) const {
  try {
    gathers_[bucket].wait();
  } catch (Error const& error) {
    throw Error(error.code(), fmt::format("parameters of bucket {} of {}: {}", bucket, gathers_.size(), error.what()));
  }
}

void ZeroOptimizer::Impl::wait_parameter(std::size_t index) {
  check_usable();
  check_index(index, "wait_parameter");
  if (gathering_) guarded([&] { wait_for_gather(bucket_of_[index]); });
}

void ZeroOptimizer::Impl::wait_parameters() {
  check_usable();
  if (!gathering_) return;
  guarded([this] {
    for (std::size_t b = gathers_.size(); b-- > 0;) wait_for_gather(b);
  });
  gather_timings_.clear();
  for (std::size_t b = gathers_.size(); b-- > 0;) {
    if (parameters_.bucket(b).count == 0) continue;
    WorkTimings const times = gathers_[b].timings();
    gather_timings_.push_back({parameters_.bucket(b).bytes(), updated_, times.started, times.finished});
  }
  gathering_ = false;
}

std::span<std::string_view const> ZeroOptimizer::Impl::names_of(std::size_t index) const {
  check_index(index, "state_names");
  return weft::state_names(group_options_[group_of_[index]]);
}

std::vector<float> ZeroOptimizer::Impl::state(std::size_t index, std::size_t which) {
  check_usable();
  if (which >= state_count(index)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("ZeroOptimizer::state: state {} of parameter {}, which has {}",
                                                         which, index, state_count(index)));
  }
  wait_parameters();
  std::vector<float> whole(parameters_.tensor(index).count, 0);
  if (!optimizer_) return whole;
  std::vector<float> const mine =
      shards_[index].count == 0 ? std::vector<float>() : optimizer_->state(optimized_as_[index], which);
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    counts.push_back(0);
    for (ShardPiece const& piece : pieces_of(parameters_.plan(), rank, communicator_.size())) {
      if (piece.tensor == index) counts.back() = piece.count;
    }
  }
  guarded(
      [&] { communicator_.all_gather(std::span<float const>(mine), std::span<float>(whole), Parts{counts}).wait(); });
  return whole;
}

void ZeroOptimizer::Impl::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  check_index(index, "set_state");
  if (!optimizer_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ZeroOptimizer::set_state: shards may still move; construct with options.buckets.rebuild = "
                            "false to load states before the first step (parameter {})",
                            index));
  }
  std::size_t const count = parameters_.tensor(index).count;
  if (which >= state_count(index) || values.size() != count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ZeroOptimizer::set_state: state {} of parameter {} with {} elements and {} states, given "
                            "{} elements",
                            which, index, count, state_count(index), values.size()));
  }
  ShardRange const mine = shards_[index];
  if (mine.count != 0) optimizer_->set_state(optimized_as_[index], which, values.subspan(mine.first, mine.count));
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
void ZeroOptimizer::step(StepInputs const& inputs) {
  impl_->step(inputs);
}
void ZeroOptimizer::reduce() {
  impl_->reduce();
}
ShardRange ZeroOptimizer::shard(std::size_t index) const {
  return impl_->shard(index);
}
BufferView ZeroOptimizer::parameter_shard(std::size_t index) const {
  ShardRange const mine = shard(index);
  return parameter(index).slice(mine.first, mine.count);
}
BufferView ZeroOptimizer::gradient_shard(std::size_t index) const {
  ShardRange const mine = shard(index);
  return gradient(index).slice(mine.first, mine.count);
}
void ZeroOptimizer::wait_parameter(std::size_t index) {
  impl_->wait_parameter(index);
}
void ZeroOptimizer::wait_parameters() {
  impl_->wait_parameters();
}
OptimizerOptions const& ZeroOptimizer::options(std::size_t group) const {
  return impl_->options(group);
}
void ZeroOptimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < impl_->group_count(); ++group) impl_->set_lr(group, lr);
}
void ZeroOptimizer::set_lr(std::size_t group, double lr) {
  impl_->set_lr(group, lr);
}
std::int64_t ZeroOptimizer::step_count() const noexcept {
  return impl_->step_count();
}
void ZeroOptimizer::set_step_count(std::int64_t step) noexcept {
  impl_->set_step_count(step);
}
std::span<std::string_view const> ZeroOptimizer::state_names(std::size_t index) const {
  return impl_->names_of(index);
}
std::vector<float> ZeroOptimizer::state(std::size_t index, std::size_t which) {
  return impl_->state(index, which);
}
void ZeroOptimizer::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  impl_->set_state(index, which, values);
}
std::size_t ZeroOptimizer::state_bytes() const noexcept {
  return impl_->state_bytes();
}
std::span<BucketTiming const> ZeroOptimizer::reductions() const noexcept {
  return std::as_const(*impl_).bucketer().timings();
}
std::span<BucketTiming const> ZeroOptimizer::gathers() const noexcept {
  return impl_->gather_timings();
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
