#include "collectives/shm/store_choice.hpp"

#include <algorithm>
#include <utility>

namespace weft::shm {

void StoreChoice::took(std::size_t bytes, double ns) noexcept {
  auto const rate = ns / static_cast<double>(bytes);
  if (std::exchange(looks_back_, false) && rate > kDear) return begin_round(true);
  best_ = std::min(best_, rate);
  if (++timed_ == kRound) end_round();
}

void StoreChoice::begin_round(bool streams) noexcept {
  streams_ = streams;
  best_ = kUnknown;
  timed_ = 0;
}

void StoreChoice::end_round() noexcept {
  if (!streams_) {
    cached_ = best_;
    rounds_ = 0;
    auto const is_dear = cached_ > kDear;
    return begin_round(is_dear && --pause_ < 0);
  }
  if (kLeastGain * best_ > cached_) {
    pause_ = std::exchange(next_pause_, std::min(2 * next_pause_, kMostPause));
    return begin_round(false);
  }
  next_pause_ = 1;
  looks_back_ = ++rounds_ % kRoundsPerLook == 0;
  begin_round(!looks_back_);
}

}  // namespace weft::shm
