#include "scheduler/plan/launches_behind.hpp"

#include <algorithm>
#include <cstddef>

namespace weft {

namespace {

/// Launches beyond this number are not told apart.
constexpr std::size_t kMostLaunches = 60;
/// The idle seconds that are looked at start at half a latency and grow by this factor.
constexpr double kIdleGrowth = 1.1;
/// Where there are more states than this, one state with the best of each stands for them all.
constexpr std::size_t kMostStates = 32;
/// Sums of the same seconds in another order may differ in the last bits.
constexpr double kShareRounding = 1e-9;

}  // namespace

LaunchesBehind::LaunchesBehind(ReleasedMemory const& released, LinkTerms const& link, LaunchGrowth const& last,
                               double room_s)
    : released_(released), link_(link), room_s_(room_s) {
  double const all = released.gathers_s() + released.others_s();
  idles_.push_back(0);
  for (double idle = link.latency_s / 2; idle < all; idle *= kIdleGrowth) idles_.push_back(idle);
  idles_.push_back(all + static_cast<double>(kMostLaunches) * link.latency_s);
  for (double const idle : idles_) {
    auto& sent = last_sent_.emplace_back(1, 0.0);
    for (std::size_t launch = 1; launch <= kMostLaunches; ++launch) {
      double const then = (1 + link.contention) * (idle + last.computed_with(sent.back())) -
                          static_cast<double>(launch) * link.latency_s;
      sent.push_back(std::max(sent.back(), then));
    }
  }
}

template <typename Computed>
std::vector<LaunchesBehind::Sent> LaunchesBehind::after_one(std::vector<Sent> const& states,
                                                            Computed const& computed_with) const {
  std::vector<Sent> next;
  for (Sent const& state : states) {
    double const computed = computed_with(state);
    double const gathers = std::max(
        state.gathers_s, std::min(released_.gathers_s(), room_s_ + released_.freed_s(computed, state.others_s)));
    double const others = std::max(state.others_s, std::min(released_.others_s(), released_.ready_s(computed)));
    if (released_.mixes()) {
      next.push_back({gathers, others});
    } else {
      next.push_back({gathers, state.others_s});
      next.push_back({state.gathers_s, others});
    }
  }
  std::sort(next.begin(), next.end(), [](Sent const& a, Sent const& b) {
    return a.gathers_s != b.gathers_s ? a.gathers_s > b.gathers_s : a.others_s > b.others_s;
  });
  std::vector<Sent> best;
  for (Sent const& each : next) {
    if (best.empty() || each.others_s > best.back().others_s) best.push_back(each);
  }
  if (best.size() > kMostStates) return {{best.front().gathers_s, best.back().others_s}};
  return best;
}

std::vector<LaunchesLeft> LaunchesBehind::choices(double held_s, double sent_s, double idle_s) const {
  auto const first_sent = most_sent(held_s, idle_s);
  double const left = (released_.gathers_s() + released_.others_s() - sent_s) * (1 - kShareRounding);
  auto const is_enough = [&](std::size_t launches, std::vector<double> const& last_sent) {
    for (std::size_t last = 0; last <= launches; ++last) {
      if (first_sent[launches - last] + last_sent[last] < left) return false;
    }
    return true;
  };
  std::vector<LaunchesLeft> choices;
  std::size_t launches = kMostLaunches;
  // Whoever waits for no more than idles_[i + 1] may have waited for only idles_[i].
  for (std::size_t i = 0; i + 1 < idles_.size(); ++i) {
    std::size_t least = 0;
    while (least < launches && !is_enough(least, last_sent_[i + 1])) ++least;
    if (i == 0 || least < launches) choices.push_back({static_cast<double>(least), idles_[i]});
    launches = least;
  }
  return choices;
}

/// The most that was sent after each number of launches, not counting the one that is under way at the cut's end, nor
/// gathers held there.
std::vector<double> LaunchesBehind::most_sent(double held_s, double idle_s) const {
  std::vector<double> most;
  std::vector<Sent> states{{held_s, released_.others_early_s()}};
  double const all = released_.gathers_s() + released_.others_s() - held_s;
  for (std::size_t launch = 0; launch <= kMostLaunches; ++launch) {
    if (most.empty() || most.back() < all) {
      double const passed = launch == 0 ? 0 : static_cast<double>(launch - 1) * link_.latency_s;
      states = after_one(states, [&](Sent const& state) {
        // This counts others that were sent before the cut, too: that only adds time, so the bound holds.
        double const sent = state.gathers_s + state.others_s - held_s;
        return launch == 0 ? 0 : idle_s + (passed + sent) / (1 + link_.contention);
      });
    }
    double sent = 0;
    for (Sent const& each : states) sent = std::max(sent, each.gathers_s + each.others_s - held_s);
    most.push_back(sent);
  }
  return most;
}

}  // namespace weft
