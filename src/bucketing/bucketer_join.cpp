#include <algorithm>

#include "bucketing/agreement.hpp"
#include "bucketing/bucketer_impl.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "weft/error.hpp"

namespace weft {

void Bucketer::Impl::begin_join(JoinOptions const& options) {
  check_usable();
  if (join_ || tracker_.any_marked() || all_launched_ || !sync_) {
    throw Error(ErrorCode::invalid_argument,
                "bucketer: begin_join(): it is on already, a step is not finished, or synchronisation is off");
  }
  check_join(options, options_, specs_);
  check_agreement(communicator_, options);
  join_.emplace(options);
}

// Announces in front of the step's first bucket: on every rank that is the same place, whatever becomes ready first.
void Bucketer::Impl::announce_step() {
  guarded([this] { join_->announce(communicator_, sender_.stream(), !shadowing_); });
  std::fill(divided_.begin(), divided_.end(), std::uint8_t{0});
  if (!join_->options().throw_on_early_termination) return;
  guarded([this] { (void)join_->count(); });
  try {
    join_->check_all_or_none(communicator_.size());
  } catch (Error const&) {
    join_->end_step();
    throw;
  }
}

void Bucketer::Impl::announce_own_step() {
  announce_step();
  join_->count_step();
}

bool Bucketer::Impl::shadow_step() {
  check_usable();
  if (!join_ || tracker_.any_marked() || all_launched_ || !sync_) {
    throw Error(ErrorCode::invalid_argument,
                "bucketer: shadow_step(): begin_join() comes first, and finish() of every step of this rank's");
  }
  shadowing_ = !tracker_.any_gradient();
  struct Reset {
    bool& shadowing;
    ~Reset() { shadowing = false; }
  } const reset{shadowing_};
  announce_step();
  int active = 0;
  guarded([&] { active = join_->count(); });
  if (active == 0) {
    join_->end_step();
    return false;
  }
  finish();
  return true;
}

std::size_t Bucketer::Impl::end_join() noexcept {
  if (!join_) return 0;
  std::size_t const steps = join_->steps();
  join_->drain();
  join_.reset();
  return steps;
}

void Bucketer::Impl::divide_by_active(std::size_t bucket) {
  divided_[bucket] = 1;
  float const factor = join_->factor(options_.op, communicator_.size());
  BufferView const mine = sender_.part(storage_, bucket);
  if (factor == 1 || mine.count == 0) return;
  if (sender_.compute()) {
    device_scale_.scale(mine, factor, *sender_.compute());
  } else {
    kernels::scale(mine.data, mine.count, mine.dtype, factor);
  }
}

}  // namespace weft
