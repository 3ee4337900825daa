// ZeroOptimizer::reconfigure(): other buckets between steps. What ranks own moves along.
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "bucketing/agreement.hpp"
#include "optim/rule.hpp"
#include "sharding/zero_impl.hpp"

namespace weft {

// True where an element's update depends on nothing but that element.
bool ZeroOptimizer::Impl::may_move_shards() const noexcept {
  return !compute_ && !shards_.needs_norms() && !policy_.max_norm && shards_.settings().state == StateType::f32;
}

void ZeroOptimizer::Impl::check_may_change(BucketSettings const& settings) const {
  auto const refuse = [](ErrorCode code, char const* why) {
    throw Error(code, std::string("ZeroOptimizer::reconfigure: ") + why);
  };
  if (any_marked_ || reduced_) refuse(ErrorCode::invalid_argument, "in the middle of a step; call step() first");
  BucketSettings const now = bucketer_.settings();
  bool const moves = settings.limits != now.limits || settings.policy != now.policy;
  if (moves && !may_move_shards()) {
    refuse(ErrorCode::unsupported,
           "where buckets end shows in the bits of a step on a GPU, under Lamb, with GradientPolicy::max_norm and with "
           "8-bit states; choose buckets at construction");
  }
}

// Memory is taken first, so that nothing has changed where there is none.
void ZeroOptimizer::Impl::reconfigure(BucketSettings const& settings) {
  check_usable();
  check_may_change(settings);
  wait_parameters();
  BucketPlan const plan = bucketer_.plan_under(settings);
  check_agreement(communicator_, settings);
  if (plan == bucketer_.plan()) {
    bucketer_.reconfigure(settings);
  } else {
    BucketStorage parameters(communicator_, parameter_plan(plan), MemoryKind::parameters, compute_);
    PieceOptimizer shards = shards_for(parameters);
    bucketer_.reconfigure(settings);
    guarded([&] { move_to(std::move(parameters), std::move(shards)); });
  }
  options_.overlap = settings.overlap;
}

// Shards for the new buckets, fixed if they are fixed now. Collective: all ranks have memory for their states, or none
// has.
PieceOptimizer ZeroOptimizer::Impl::shards_for(BucketStorage const& parameters) {
  PieceOptimizer shards = shards_.unfixed();
  shards.use_plan(parameters.plan(), communicator_.rank(), communicator_.size());
  if (!shards_.is_fixed()) return shards;
  parameters.copy_tensors_from(parameters_);
  std::array<std::uint8_t, 1> fits{1};
  std::string why = "another rank has no room for a second set of states";
  try {
    shards.fix(parameters);
  } catch (Error const& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    fits[0] = 0;
    why = error.what();
  }
  communicator_.all_reduce(std::span<std::uint8_t const>(fits), std::span<std::uint8_t>(fits), ReduceOp::min).wait();
  if (fits[0] == 0) throw Error(ErrorCode::out_of_memory, why);
  return shards;
}

void ZeroOptimizer::Impl::move_to(BucketStorage parameters, PieceOptimizer shards) {
  if (!shards.is_fixed()) {
    parameters.copy_tensors_from(parameters_);
  } else {
    for (std::size_t index = 0; index < shards.parameter_count(); ++index) move_values(shards, index);
  }
  parameters_ = std::move(parameters);
  shards_ = std::move(shards);
  gathers_.use(parameters_.plan());
  updates_.reserve(2 * shards_.pieces().size());
}

// Only one state of one parameter is whole at a time.
void ZeroOptimizer::Impl::move_values(PieceOptimizer& to, std::size_t index) {
  ShardRange const mine = to.shard(index);
  auto const part = [&](std::vector<float> const& whole) {
    return std::span<float const>(whole).subspan(mine.first, mine.count);
  };
  std::size_t const states = weft::state_names(shards_.options_of(index)).size();
  for (std::size_t which = 0; which < states; ++which) {
    to.set_state("reconfigure", index, which, part(state(index, which)));
  }
  bool const has_master = shards_.settings().master_weights && parameters_.tensor(index).dtype != DataType::f32;
  if (has_master) to.set_master("reconfigure", index, part(master(index)));
}

}  // namespace weft
