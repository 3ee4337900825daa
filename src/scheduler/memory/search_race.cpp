#include "scheduler/memory/search_race.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>

#include "scheduler/memory/placement_order.hpp"

namespace weft {

namespace {

using Outcome = CanonicalSearch::Outcome;

/// The orders found best on tightly packed problems, best first.
constexpr std::array<PlacementKeys, 3> kOrders{"AWT", "TWA", "WTA"};

}  // namespace

SearchRace::SearchRace(Sections const& sections, int threads) : sections_(sections), threads_(threads) {
  for (PlacementKeys const keys : kOrders) orders_.push_back(placement_order(sections, keys));
}

SearchRace::Result SearchRace::run(std::int64_t capacity, std::int64_t budget,
                                   std::function<bool()> const& stopped) const {
  std::vector<Result> results(orders_.size());
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> winner{orders_.size()};  // searches in later orders need not go on
  auto const search = [&] {
    for (std::size_t i = next++; i < orders_.size(); i = next++) {
      CanonicalSearch one(sections_, orders_[i], capacity);
      results[i].outcome = one.run(budget, [&] { return winner.load() < i || stopped(); });
      if (results[i].outcome == Outcome::undecided || results[i].outcome == Outcome::inconclusive) continue;
      if (results[i].outcome == Outcome::found) results[i].offsets = one.offsets();
      std::size_t before = winner.load();
      while (i < before && !winner.compare_exchange_weak(before, i)) {
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    int const wanted = std::min(threads_, static_cast<int>(orders_.size()));
    for (int i = 1; i < wanted; ++i) helpers.emplace_back(search);
    search();
  }
  if (winner < results.size()) return std::move(results[winner]);
  bool const more =
      std::any_of(results.begin(), results.end(), [](Result const& one) { return one.outcome == Outcome::undecided; });
  return {.outcome = more ? Outcome::undecided : Outcome::inconclusive, .offsets = {}};
}

}  // namespace weft
