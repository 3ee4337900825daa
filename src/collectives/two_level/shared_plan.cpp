#include "collectives/two_level/shared_plan.hpp"

#include <algorithm>

namespace weft::two_level {

SharedPlan::SharedPlan(Call call, Levels const& levels)
    : Plan(std::move(call)),
      levels_(levels),
      width_(levels.region_bytes / element() * levels.places()),
      steps_(std::max<std::size_t>(1, (this->call().contract.count + width_ - 1) / width_)) {}

SharedPlan::Range SharedPlan::share(std::size_t step, int place) const noexcept {
  auto const first = step * width_;
  auto const all = call().contract.count;
  auto const count = first >= all ? 0 : std::min(width_, all - first);
  auto const index = static_cast<std::size_t>(place);
  auto const begin = count * index / levels_.places();
  return {first + begin, count * (index + 1) / levels_.places() - begin};
}

InnerCall SharedPlan::shares(std::size_t step, Operation equal, Operation unequal) const {
  PartsOfPlaces parts;
  for (int place = 0; place < static_cast<int>(levels_.places()); ++place) {
    auto const [first, count] = share(step, place);
    parts.add(first, count);
  }
  return inner(call(), equal, unequal, parts, levels_.place());
}

}  // namespace weft::two_level
