#include "weft_topology/links.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace weft::topology {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPings = 40;
constexpr int kWarmUps = 5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One end of a pair. The first sends first; what it finds is what counts.
class End {
 public:
  End(Communicator& world, int peer, bool first, std::size_t bytes)
      : world_(world), peer_(peer), first_(first), message_(bytes), word_(8) {}

  /// Half of a round trip that a quarter of all undercut, in seconds; of the first end.
  double latency() {
    std::vector<double> trips;
    for (int trip = 0; trip < kWarmUps + kPings; ++trip) {
      auto const start = Clock::now();
      exchange(word_, word_, first_);
      if (trip >= kWarmUps) trips.push_back(seconds_since(start));
    }
    std::nth_element(trips.begin(), trips.begin() + kPings / 4, trips.end());
    return trips[kPings / 4] / 2;
  }

  /// Bytes a second of a long message and the short answer to it, less two latencies; of the end that sends it.
  double bandwidth(bool sends, double latency, int repeats) {
    double best = 0;
    for (int repeat = 0; repeat <= repeats; ++repeat) {  // the first one warms up
      auto const start = Clock::now();
      exchange(sends ? message_ : word_, sends ? word_ : message_, sends);
      auto const took = std::max(1e-9, seconds_since(start) - 2 * latency);
      if (repeat > 0) best = std::max(best, static_cast<double>(message_.size()) / took);
    }
    return best;
  }

 private:
  using Bytes = std::vector<std::uint8_t>;

  void exchange(Bytes& sent, Bytes& received, bool begins) {
    if (begins) world_.send(std::span<std::uint8_t const>(sent), peer_);
    world_.recv(std::span(received), peer_);
    if (!begins) world_.send(std::span<std::uint8_t const>(sent), peer_);
  }

  Communicator& world_;
  int peer_;
  bool first_;
  Bytes message_;
  Bytes word_;
};

/// What the two ends of a pair saw: (latency, first to second, second to first), zeros for what the other end sees.
struct Sight {
  double latency = 0;
  double there = 0;
  double back = 0;
};

Sight measure_pair(Communicator& world, std::pair<int, int> pair, LinkOptions const& options) {
  bool const first = world.rank() == pair.first;
  if (!first && world.rank() != pair.second) return {};
  End end(world, first ? pair.second : pair.first, first, options.bytes);
  auto const latency = end.latency();
  auto const one = end.bandwidth(first, latency, options.repeats);
  auto const other = end.bandwidth(!first, latency, options.repeats);
  return first ? Sight{latency, one, 0} : Sight{0, 0, other};
}

}  // namespace

std::vector<std::pair<int, int>> pairs_of(std::vector<int> const& host_of, std::size_t most) {
  auto const size = static_cast<int>(host_of.size());
  bool const all = host_of.size() * (host_of.size() - 1) / 2 <= most;
  auto const counts = [&](int rank) {
    auto const at = host_of.begin() + rank;
    return all || std::find(host_of.begin(), at, *at) == at;
  };
  std::vector<std::pair<int, int>> pairs;
  for (int first = 0; first < size; ++first) {
    for (int second = first + 1; second < size; ++second) {
      if (counts(first) && counts(second)) pairs.emplace_back(first, second);
    }
  }
  return pairs;
}

std::vector<Link> measure_links(Communicator& world, std::vector<std::pair<int, int>> const& pairs,
                                LinkOptions const& options) {
  constexpr std::size_t kFigures = 3;
  std::vector<double> figures(pairs.size() * kFigures);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    world.barrier();
    auto const sight = measure_pair(world, pairs[i], options);
    figures[i * kFigures] = sight.latency;
    figures[i * kFigures + 1] = sight.there;
    figures[i * kFigures + 2] = sight.back;
  }
  // Each figure is seen by one rank and 0 on the others.
  world.all_reduce(std::span<double const>(figures), std::span(figures), ReduceOp::max);
  std::vector<Link> links;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    auto const latency_us = figures[i * kFigures] * 1e6;
    links.push_back({pairs[i].first, pairs[i].second, latency_us, figures[i * kFigures + 1]});
    links.push_back({pairs[i].second, pairs[i].first, latency_us, figures[i * kFigures + 2]});
  }
  return links;
}

}  // namespace weft::topology
