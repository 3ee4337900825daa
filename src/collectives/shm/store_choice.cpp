#include "collectives/shm/store_choice.hpp"

#include <algorithm>
#include <utility>

namespace weft::shm {

void StoreChoice::took(std::size_t bytes, double ns) noexcept {
  if (!is_alike(bytes)) {
    if (size_ != 0 && ++unlike_ < kMostUnlike) return;
    size_ = bytes;
    looks_back_ = false;
    begin_round(false);
    return;  // it was stored in the way of the round before
  }
  unlike_ = 0;
  auto const rate = ns / static_cast<double>(bytes);
  if (std::exchange(looks_back_, false) && rate > kDear) {
    cached_ = std::min(cached_, rate);  // no more, as this one may have been interrupted
    next_pause_ = 1;
    look_after_ = std::min(2 * look_after_, kMostRounds);
    return begin_round(true);
  }
  best_ = std::min(best_, rate);
  if (++timed_ == kRound) end_round();
}

void StoreChoice::begin_round(bool streams) noexcept {
  streams_ = streams;
  best_ = kUnknown;
  timed_ = 0;
}

void StoreChoice::end_round() noexcept {
  if (streams_) {
    if (kLeastGain * best_ > cached_) {
      pause_ = std::exchange(next_pause_, std::min(2 * next_pause_, kMostPause));
      return begin_round(false);
    }
    looks_back_ = ++rounds_ >= look_after_;
    if (looks_back_) rounds_ = 0;
    return begin_round(!looks_back_);
  }
  cached_ = best_;
  rounds_ = 0;
  look_after_ = 1;
  if (cached_ > kDear) return begin_round(--pause_ < 0);
  pause_ = 0;
  next_pause_ = 1;
  begin_round(false);
}

}  // namespace weft::shm
