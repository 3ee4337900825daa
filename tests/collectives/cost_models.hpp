// Costs made up for tests, with limits that can be worked out by hand.
#pragma once

#include <cstddef>

#include "collectives/shm/cost_model.hpp"

namespace weft::shm::test {

inline constexpr std::size_t kKiB = 1024;

/// Call and loop alike: `fixed` ns and `slope` ns a KiB.
inline Cost cost(double fixed, double slope) {
  Line const line{fixed, slope / 1024};
  return {line, line};
}

/// Two ranks: swapped costs 100 ns a KiB, direct `fixed` and 50 ns a KiB; so they meet at fixed / 50 KiB.
inline CostModel model(double fixed) {
  CostModel model;
  model.synchronisation_ns = 100;
  model.of(Collective::all_reduce, Algorithm::swapped) = cost(1, 100);
  model.of(Collective::all_reduce, Algorithm::direct) = cost(fixed, 50);
  return model;
}

}  // namespace weft::shm::test
