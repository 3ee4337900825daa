#include "weft_topology/slow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace weft::topology {
namespace {

/// The best figures of the links from one host to another, over all pairs of their ranks.
struct Path {
  double bytes_per_s = 0;
  double latency_us = 1e12;
};

using Paths = std::map<std::pair<int, int>, Path>;

Paths paths_between(std::vector<Link> const& links, std::vector<int> const& host_of) {
  Paths paths;
  for (auto const& link : links) {
    auto& path = paths[{host_of[static_cast<std::size_t>(link.from)], host_of[static_cast<std::size_t>(link.to)]}];
    path.bytes_per_s = std::max(path.bytes_per_s, link.bytes_per_s);
    path.latency_us = std::min(path.latency_us, link.latency_us);
  }
  return paths;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Something slow, and how many times slower than usual it is.
struct Complaint {
  double times = 1;
  std::string sentence;
};

/// How a host's links are looked at: all that leave it, that come to it, or its own inside.
enum class Side { out, in, inside };

bool belongs(Side side, int host, std::pair<int, int> ends) {
  if (ends.first == ends.second) return side == Side::inside && ends.first == host;
  return side == Side::out ? ends.first == host : side == Side::in && ends.second == host;
}

class Judge {
 public:
  Judge(Paths paths, std::vector<std::string> names, SlowBounds const& bounds)
      : paths_(std::move(paths)), names_(std::move(names)), bounds_(bounds) {}

  std::vector<std::string> complaints() {
    for (auto const side : {Side::out, Side::in, Side::inside}) judge_hosts(side);
    judge_pairs();
    std::sort(found_.begin(), found_.end(), [](auto const& a, auto const& b) { return a.times > b.times; });
    std::vector<std::string> sentences;
    for (auto const& one : found_) sentences.push_back(one.sentence);
    return sentences;
  }

 private:
  [[nodiscard]] int hosts() const { return static_cast<int>(names_.size()); }
  [[nodiscard]] std::string const& name(int host) const { return names_[static_cast<std::size_t>(host)]; }

  /// The best of a host's links on one side.
  [[nodiscard]] std::optional<Path> best_of(int host, Side side) const {
    std::optional<Path> best;
    for (auto const& [ends, path] : paths_) {
      if (!belongs(side, host, ends)) continue;
      if (!best) best = Path{};
      best->bytes_per_s = std::max(best->bytes_per_s, path.bytes_per_s);
      best->latency_us = std::min(best->latency_us, path.latency_us);
    }
    return best;
  }

  /// Needs three hosts to tell the slow one; of their own insides two.
  void judge_hosts(Side side) {
    std::vector<std::pair<int, Path>> all;
    std::vector<double> bandwidths;
    std::vector<double> latencies;
    for (int host = 0; host < hosts(); ++host) {
      auto const best = best_of(host, side);
      if (!best) continue;
      all.emplace_back(host, *best);
      bandwidths.push_back(best->bytes_per_s);
      latencies.push_back(best->latency_us);
    }
    if (all.size() < 3) return;
    char const* const what = side == Side::inside ? "inside" : side == Side::out ? "out of" : "into";
    for (auto const& [host, path] : all) {
      auto const usual = median(bandwidths);
      if (path.bytes_per_s <= bounds_.bandwidth * usual) {
        complain(usual / path.bytes_per_s, fmt::format("{} {} is slow: {} at best, where {} is usual", what, name(host),
                                                       text_of_bandwidth(path.bytes_per_s), text_of_bandwidth(usual)));
        blame(host, side);
      }
      auto const usual_latency = median(latencies);
      if (side != Side::in && path.latency_us >= bounds_.latency * usual_latency) {
        complain(path.latency_us / usual_latency, fmt::format("{} {} is late: {:.1f} us at best, where {:.1f} is usual",
                                                              side == Side::inside ? "inside" : "from and to",
                                                              name(host), path.latency_us, usual_latency));
      }
    }
  }

  /// Pairs of hosts of which neither is to blame.
  void judge_pairs() {
    std::vector<double> bandwidths;
    for (auto const& [ends, path] : paths_) {
      if (ends.first != ends.second) bandwidths.push_back(path.bytes_per_s);
    }
    if (bandwidths.size() < 2) return;
    auto const usual = bandwidths.size() == 2 ? std::max(bandwidths[0], bandwidths[1]) : median(bandwidths);
    for (auto const& [ends, path] : paths_) {
      if (ends.first == ends.second || slow_out_[ends.first] || slow_in_[ends.second]) continue;
      if (path.bytes_per_s > bounds_.bandwidth * usual) continue;
      complain(usual / path.bytes_per_s,
               fmt::format("from {} to {} is slow: {}, where {} is usual", name(ends.first), name(ends.second),
                           text_of_bandwidth(path.bytes_per_s), text_of_bandwidth(usual)));
    }
  }

  void blame(int host, Side side) {
    if (side == Side::out) slow_out_[host] = true;
    if (side == Side::in) slow_in_[host] = true;
  }

  void complain(double times, std::string sentence) { found_.push_back({times, std::move(sentence)}); }

  Paths paths_;
  std::vector<std::string> names_;
  SlowBounds bounds_;
  std::map<int, bool> slow_out_;
  std::map<int, bool> slow_in_;
  std::vector<Complaint> found_;
};

}  // namespace

std::vector<std::string> find_slow(std::vector<Link> const& links, std::vector<int> const& host_of,
                                   std::vector<std::string> const& names, SlowBounds const& bounds) {
  return Judge(paths_between(links, host_of), names, bounds).complaints();
}

std::string text_of_bandwidth(double bytes_per_s) {
  if (bytes_per_s >= 1e9) return fmt::format("{:.3g} GB/s", bytes_per_s / 1e9);
  return fmt::format("{:.3g} MB/s", bytes_per_s / 1e6);
}

}  // namespace weft::topology
