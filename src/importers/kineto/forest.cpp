#include "importers/kineto/forest.hpp"

#include <algorithm>

namespace weft::kineto {

Forest::Forest(Events const& all) : all_(all), parents_(all.events.size(), kNothing), of_lane_(all.lanes.size()) {
  for (auto const& event : all.events) own_.push_back(event.end - event.start);
  std::vector<std::size_t> innermost(all.lanes.size(), kNothing);
  for (std::size_t i = 0; i < all.events.size(); ++i) {
    auto const& event = all.events[i];
    of_lane_[event.lane].push_back(i);
    auto& around = innermost[event.lane];
    while (around != kNothing && all.events[around].end + kTolerance < event.end) around = parents_[around];
    // An event without duration at the end of another event comes after it.
    while (around != kNothing && all.events[around].end <= event.start) around = parents_[around];
    parents_[i] = around;
    if (around != kNothing) own_[around] = std::max(0.0, own_[around] - (event.end - event.start));
    around = i;
  }
}

std::size_t Forest::at(std::size_t lane, double time) const {
  auto const& events = of_lane_[lane];
  auto const after = std::upper_bound(events.begin(), events.end(), time + kTolerance,
                                      [&](double at, std::size_t event) { return at < all_.events[event].start; });
  if (after == events.begin()) return kNothing;
  auto event = *(after - 1);
  while (event != kNothing && all_.events[event].end + kTolerance < time) event = parents_[event];
  return event;
}

}  // namespace weft::kineto
