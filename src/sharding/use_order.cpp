#include "sharding/use_order.hpp"

#include <algorithm>
#include <utility>

namespace weft {

UseOrder::UseOrder(std::size_t units) : most_(2 * units * kMostPasses) {
  for (std::size_t unit = 0; unit < units; ++unit) expected_.push_back({unit, Phase::forward});
  for (std::size_t unit = units; unit-- > 0;) expected_.push_back({unit, Phase::backward});
}

void UseOrder::used(Use const& use) {
  if (seen_.size() >= most_) seen_.erase(seen_.begin(), seen_.begin() + static_cast<std::ptrdiff_t>(most_ / 2));
  seen_.push_back(use);
  // Where the program left the expected path, it is taken up again at the next use that fits, or else at the first one
  // that does (another micro-step).
  auto const here = expected_.begin() + static_cast<std::ptrdiff_t>(position_);
  auto found = std::find(here, expected_.end(), use);
  if (found == expected_.end()) {
    found = std::find(expected_.begin(), here, use);
    if (found == here) found = expected_.end();
  }
  position_ = static_cast<std::size_t>(found - expected_.begin()) + (found == expected_.end() ? 0 : 1);
}

std::size_t UseOrder::next_use(std::size_t unit) const noexcept {
  auto const rest = upcoming();
  auto const found = std::find_if(rest.begin(), rest.end(), [unit](Use const& use) { return use.unit == unit; });
  return found == rest.end() ? kNever : static_cast<std::size_t>(found - rest.begin());
}

void UseOrder::end_step() {
  if (!seen_.empty()) std::swap(expected_, seen_);
  seen_.clear();
  position_ = 0;
}

}  // namespace weft
