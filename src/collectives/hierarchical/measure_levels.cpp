// Measures which way the calls of a hierarchy should go, by one exchange between all ranks or by hosts: it times a few
// calls of each pattern, small and somewhat larger ones, both ways.
#include <algorithm>
#include <limits>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/known_figures.hpp"
#include "runtime/timeline.hpp"

namespace weft::hierarchical {
namespace {

constexpr int kTimes = 4;  // the first warms up
/// With more ranks all_to_all is not measured: it would connect every two ranks, though the job may never need that.
constexpr std::size_t kMostConnected = 64;

KnownFigures<LevelCosts>& known_costs() {
  static KnownFigures<LevelCosts> instance;
  return instance;
}

/// Seconds for few bytes and for many.
struct Times {
  double few = 0;
  double many = 0;

  [[nodiscard]] Times slower(Times const& other) const noexcept {
    return {std::max(few, other.few), std::max(many, other.many)};
  }
};

/// What one rank has measured.
struct LevelTimes {
  ByPattern<Times> flat{};
  ByPattern<Times> by_hosts{};
};

bool has_parts(Pattern pattern) noexcept {
  return pattern == Pattern::gather || pattern == Pattern::exchange;
}

/// Elements of a whole buffer; multiples of the ranks where each has a part.
struct Sizes {
  std::size_t few;
  std::size_t many;
};

Sizes sizes_of(Pattern pattern, std::size_t ranks, DataType dtype) noexcept {
  constexpr std::size_t kFewBytes = 512;
  constexpr std::size_t kManyBytes = std::size_t{64} << 10;
  auto const unit = has_parts(pattern) ? ranks : 1;
  auto const most = pattern == Pattern::combine ? most_combined_at_once(ranks) : kManyBytes;
  auto const few = std::max(kFewBytes / size_of(dtype) / unit, std::size_t{1});
  return {few * unit, std::max(most / size_of(dtype) / unit, 8 * few) * unit};
}

weft::Operation example_of(Pattern pattern) noexcept {
  switch (pattern) {
    case Pattern::gather: return weft::Operation::all_gather;
    case Pattern::spread: return weft::Operation::broadcast;
    case Pattern::exchange: return weft::Operation::all_to_all;
    case Pattern::combine: break;
  }
  return weft::Operation::all_reduce;
}

}  // namespace

double HierarchicalBackend::time_example(Pattern pattern, std::size_t elements, DataType dtype,
                                         std::chrono::milliseconds timeout) {
  auto const send = workspace(elements, dtype);
  auto const recv = workspace(elements, dtype);
  Call call;
  call.timeout = timeout;
  call.contract = {
      .count = has_parts(pattern) ? elements / ranks() : elements, .operation = example_of(pattern), .dtype = dtype};
  call.send = send.data();
  call.recv = pattern == Pattern::spread ? send.data() : recv.data();
  auto fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    auto const begin = now();
    switch (pattern) {
      case Pattern::combine: all_reduce(call); break;
      case Pattern::gather: all_gather(call); break;
      case Pattern::spread: broadcast(call); break;
      case Pattern::exchange: all_to_all(call); break;
    }
    if (i > 0) fastest = std::min(fastest, std::chrono::duration<double>(now() - begin).count());
  }
  return fastest;
}

// Takes the fastest of each rank's calls, and of those the slowest rank's.
LevelCosts HierarchicalBackend::measure_levels(std::chrono::milliseconds timeout) {
  Explainer::Silence const quiet;
  auto const dtype = wire_ == WireFormat::f32 ? DataType::f32 : DataType::f64;  // a type that is not rounded
  std::vector<Pattern> measured(kPatterns.begin(), kPatterns.end());
  if (ranks() > kMostConnected) std::erase(measured, Pattern::exchange);
  auto const chosen = limits_;
  LevelTimes mine;
  for (auto const pattern : measured) {
    auto const few = sizes_of(pattern, ranks(), dtype).few;
    auto const many = sizes_of(pattern, ranks(), dtype).many;
    limits_[pattern] = std::numeric_limits<std::size_t>::max();
    mine.flat[pattern] = {time_example(pattern, few, dtype, timeout), time_example(pattern, many, dtype, timeout)};
    limits_[pattern] = 0;
    mine.by_hosts[pattern] = {time_example(pattern, few, dtype, timeout), time_example(pattern, many, dtype, timeout)};
  }
  limits_ = chosen;
  std::vector<LevelTimes> all(ranks());
  Call tell;
  tell.timeout = timeout;
  tell.contract = {.count = sizeof mine, .operation = weft::Operation::all_gather, .dtype = DataType::u8};
  tell.send = &mine;
  tell.recv = all.data();
  run_inter(tell, &Backend::all_gather);

  LevelCosts costs;
  for (auto const pattern : measured) {
    Times flat;
    Times by_hosts;
    for (auto const& each : all) {
      flat = flat.slower(each.flat[pattern]);
      by_hosts = by_hosts.slower(each.by_hosts[pattern]);
    }
    auto const sizes = sizes_of(pattern, ranks(), dtype);
    auto const few = sizes.few * size_of(dtype);
    auto const many = sizes.many * size_of(dtype);
    costs.measured[pattern] = true;
    costs.flat[pattern] = WayCost::through(few, flat.few, many, flat.many);
    costs.by_hosts[pattern] = WayCost::through(few, by_hosts.few, many, by_hosts.many);
  }
  return costs;
}

void HierarchicalBackend::find_level_costs(Bootstrap& bootstrap, std::string const& network, bool measures,
                                           std::chrono::milliseconds timeout) {
  set_level_costs(known_costs().find(
      bootstrap, network, measures, LevelCosts(), [&] { return measure_levels(timeout); },
      [](LevelCosts const& a, LevelCosts const& /*b*/) { return a; }));
}

}  // namespace weft::hierarchical
