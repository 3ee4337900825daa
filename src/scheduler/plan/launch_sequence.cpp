#include "scheduler/plan/launch_sequence.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();
/// Seconds that are nothing beside what any operator takes.
constexpr double kInstant = 1e-9;

/// How far computing has come.
struct Computing {
  double now = 0;
  std::size_t segment = 0;  ///< the one that runs, or is next
  double left = -1;         ///< seconds left of the segment, at full speed; negative: it has not started
  double idle = 0;          ///< seconds lost until now: idle, or slowed by sending

  [[nodiscard]] bool runs() const { return left >= 0; }
};

/// How many units have been sent, or are being sent: always the first ones.
struct Sendings {
  std::size_t gathers = 0;
  std::size_t reductions = 0;
};

/// Where a step stands when its link has just ended a launch.
struct State {
  Computing computing{};
  Sendings sent{};
  std::int64_t live_bytes = 0;
  bool blocked = false;       ///< the next segment has all that it needs but memory
  std::int32_t from = kNone;  ///< the state before
  double decided_s = 0;       ///< when the launch that led here was decided upon
};

class Sequencer {
 public:
  Sequencer(SendChain const& chain, SequenceRules const& rules)
      : chain_(chain),
        rules_(rules),
        slack_bytes_(static_cast<std::int64_t>(static_cast<double>(rules.capacity) * rules.memory_slack)),
        shortest_(rules.below_s),
        computed_behind_(chain.segments.size() + 1, 0),
        ways_((all().gathers + 1) * (all().reductions + 1)) {
    for (std::size_t i = chain.segments.size(); i-- > 0;) {
      computed_behind_[i] = computed_behind_[i + 1] + chain.segments[i].seconds;
    }
  }

  std::optional<LaunchSequence> run() {
    keep({});
    for (std::size_t sum = 0; sum <= all().gathers + all().reductions; ++sum) {
      for (std::size_t gathers = sum - std::min(sum, all().reductions); gathers <= std::min(sum, all().gathers);
           ++gathers) {
        // In order of the sum, as every launch leads to a larger one.
        for (std::int32_t const state : ways_to({gathers, sum - gathers})) extend(state);
        if (launches_ > rules_.most_launches) return std::nullopt;
      }
    }
    if (best_ == kNone) return std::nullopt;
    return sequence();
  }

 private:
  [[nodiscard]] Sendings all() const { return {chain_.gathers.size(), chain_.reductions.size()}; }
  [[nodiscard]] bool has_sent_all(Sendings const& sent) const {
    return sent.gathers == all().gathers && sent.reductions == all().reductions;
  }
  [[nodiscard]] bool has_computed_all(Computing const& computing) const {
    return computing.segment == chain_.segments.size();
  }
  std::vector<std::int32_t>& ways_to(Sendings const& sent) {
    return ways_[sent.gathers * (all().reductions + 1) + sent.reductions];
  }

  /// Bytes live: units up to `launched` have been sent or are being sent, reductions up to `reduced` have ended.
  [[nodiscard]] std::int64_t live(Computing const& computing, bool runs, Sendings const& launched,
                                  std::size_t reduced) const {
    std::int64_t const sending =
        chain_.made_bytes[launched.reductions] - chain_.made_bytes[reduced] - chain_.reduced_bytes[reduced];
    if (has_computed_all(computing)) return sending;  // less than at any time before
    ChainSegment const& segment = chain_.segments[computing.segment];
    return (runs ? segment.running_bytes : segment.before_bytes) + chain_.gathered_bytes[launched.gathers] -
           segment.freed_bytes + sending;
  }

  /// Whether the next segment has all it needs but memory.
  [[nodiscard]] bool is_blocked(Computing const& computing, std::size_t gathered, Sendings const& launched,
                                std::size_t reduced) const {
    return !has_computed_all(computing) && !computing.runs() && chain_.segments[computing.segment].needs <= gathered &&
           live(computing, true, launched, reduced) > rules_.capacity;
  }

  /// Starts the present segment where it has not started and can; returns whether it runs.
  bool start(Computing& computing, std::size_t gathered, Sendings const& launched, std::size_t reduced) {
    if (has_computed_all(computing)) return false;
    if (computing.runs()) return true;
    ChainSegment const& segment = chain_.segments[computing.segment];
    if (segment.needs > gathered || live(computing, true, launched, reduced) > rules_.capacity) return false;
    computing.left = segment.seconds;
    if (starts_ != nullptr) (*starts_)[computing.segment] = computing.now;
    return true;
  }

  static void pass(Computing& computing) {
    computing.left = -1;
    ++computing.segment;
  }

  /// Computes while a launch is sent that leads from `before` to `after`. False where computing lacked room for a
  /// while.
  bool compute_beside(Computing& computing, double seconds, Sendings const& before, Sendings const& after) {
    double const slow = 1 + rules_.contention;
    double const end = computing.now + seconds;
    while (computing.now < end) {
      if (!start(computing, before.gathers, after, before.reductions)) {
        bool const blocked = is_blocked(computing, before.gathers, after, before.reductions);
        computing.idle += end - computing.now;
        computing.now = end;
        return !blocked;
      }
      double const step = std::min(end - computing.now, computing.left * slow);
      computing.now += step;
      computing.idle += step - step / slow;
      computing.left -= step / slow;
      if (computing.left <= kInstant) pass(computing);
    }
    computing.now = end;
    return true;
  }

  /// Computes while the link is idle, up to the end of a segment; false where nothing can be computed.
  bool wait(Computing& computing, Sendings const& sent, double until = kNoEnd) {
    if (!start(computing, sent.gathers, sent, sent.reductions)) return false;
    double const step = std::min(computing.left, until - computing.now);
    computing.now += step;
    computing.left -= step;
    if (computing.left <= kInstant) pass(computing);
    return true;
  }

  bool send(Computing& computing, Sendings const& before, Sendings const& after) {
    double const seconds = after.gathers > before.gathers
                               ? chain_.gather_seconds(before.gathers, after.gathers)
                               : chain_.reduction_seconds(before.reductions, after.reductions);
    return compute_beside(computing, seconds, before, after);
  }

  /// Tries all launches that can follow a state: now, or after waiting where that allows larger ones, or lets computing
  /// first have the memory that they would have taken from it.
  void extend(std::int32_t from) {
    Sendings const sent = states_[at(from)].sent;
    Computing computing = states_[at(from)].computing;
    Sendings tried = sent;  // up to where launches took no memory that computing wanted
    while (may_be_shorter(computing, sent)) {
      tried.gathers = for_ends(sent.gathers, tried.gathers, most_gathers(computing, sent), [&](std::size_t end) {
        return launch(from, computing, {end, sent.reductions});
      });
      tried.reductions =
          for_ends(sent.reductions, tried.reductions, most_reductions(computing, sent), [&](std::size_t end) {
            return launch(from, computing, {sent.gathers, end});
          });
      if (!wait(computing, sent)) break;
    }
  }

  /// How many gathers can have been sent after a launch that starts now.
  [[nodiscard]] std::size_t most_gathers(Computing const& computing, Sendings const& sent) const {
    std::size_t end = sent.gathers;
    while (end < all().gathers && has_room(chain_.gathers[end], computing, {end + 1, sent.reductions}, sent)) ++end;
    return end;
  }

  [[nodiscard]] std::size_t most_reductions(Computing const& computing, Sendings const& sent) const {
    std::size_t end = sent.reductions;
    while (end < all().reductions && has_room(chain_.reductions[end], computing, {sent.gathers, end + 1}, sent)) ++end;
    return end;
  }

  /// Whether the last unit of a launch from `sent` to `launched` is ready and all of the launch has room.
  [[nodiscard]] bool has_room(ChainUnit const& last, Computing const& computing, Sendings const& launched,
                              Sendings const& sent) const {
    return last.ready <= computing.segment &&
           live(computing, computing.runs(), launched, sent.reductions) <= rules_.capacity;
  }

  /// Calls attempt() for launches of the units from `begin` on that end after `tried` and at `most` at the latest.
  /// Returns the end up to which all calls returned true.
  template <typename Try>
  std::size_t for_ends(std::size_t begin, std::size_t tried, std::size_t most, Try const& attempt) const {
    std::size_t good = tried;
    bool unhindered = true;
    for (std::size_t end = tried + 1; end <= most;) {
      unhindered = attempt(end) && unhindered;
      if (unhindered) good = end;
      if (end == most) break;
      auto const next = static_cast<std::size_t>(static_cast<double>(end - begin) * rules_.size_growth);
      end = std::min(most, std::max(end + 1, begin + next));
    }
    return good;
  }

  bool launch(std::int32_t from, Computing computing, Sendings const& after) {
    ++launches_;
    State state{.sent = after, .from = from, .decided_s = computing.now};
    bool const computes = send(computing, states_[at(from)].sent, after);
    state.computing = computing;
    keep(state);
    return computes;
  }

  [[nodiscard]] double computed_left(Computing const& computing) const {
    return computing.runs() ? computed_behind_[computing.segment + 1] + computing.left
                            : computed_behind_[computing.segment];
  }

  /// The least seconds that it takes to send what is left.
  [[nodiscard]] double sent_left(Sendings const& sent) const {
    return (sent.gathers < all().gathers ? chain_.gather_seconds(sent.gathers, all().gathers) : 0) +
           (sent.reductions < all().reductions ? chain_.reduction_seconds(sent.reductions, all().reductions) : 0);
  }

  /// A lower bound of the step's end.
  [[nodiscard]] double earliest_end(Computing const& computing, Sendings const& sent) const {
    double const left = computed_left(computing);
    double end = std::max(sent_left(sent), left);
    if (sent.reductions < all().reductions) {
      double const ready = std::max(0.0, left - computed_behind_[chain_.reductions.back().ready]);
      end = std::max(end, ready + chain_.reduction_seconds(all().reductions - 1, all().reductions));
    }
    return computing.now + end;
  }

  [[nodiscard]] bool may_be_shorter(Computing const& computing, Sendings const& sent) const {
    return earliest_end(computing, sent) < shortest_ - kInstant;
  }

  [[nodiscard]] bool is_no_worse(State const& a, State const& b) const {
    return a.computing.now <= b.computing.now + kInstant && a.computing.idle <= b.computing.idle + kInstant &&
           a.live_bytes <= b.live_bytes + slack_bytes_ && (!a.blocked || b.blocked);
  }

  void keep(State state) {
    if (!may_be_shorter(state.computing, state.sent)) return;
    state.live_bytes = live(state.computing, state.computing.runs(), state.sent, state.sent.reductions);
    state.blocked = is_blocked(state.computing, state.sent.gathers, state.sent, state.sent.reductions);
    auto& others = ways_to(state.sent);
    if (std::any_of(others.begin(), others.end(),
                    [&](std::int32_t other) { return is_no_worse(states_[at(other)], state); })) {
      return;
    }
    std::erase_if(others, [&](std::int32_t other) { return is_no_worse(state, states_[at(other)]); });
    if (others.size() >= rules_.most_states) {
      auto const end_of = [&](std::int32_t id) {
        return earliest_end(states_[at(id)].computing, states_[at(id)].sent);
      };
      auto const last =
          std::max_element(others.begin(), others.end(), [&](auto a, auto b) { return end_of(a) < end_of(b); });
      if (earliest_end(state.computing, state.sent) >= end_of(*last)) return;
      others.erase(last);
    }
    others.push_back(static_cast<std::int32_t>(states_.size()));
    states_.push_back(state);
    if (has_sent_all(state.sent)) finish(state);
  }

  void finish(State const& state) {
    Computing computing = state.computing;
    while (wait(computing, all())) {
    }
    if (!has_computed_all(computing) || computing.now >= shortest_) return;
    shortest_ = computing.now;
    best_ = static_cast<std::int32_t>(states_.size()) - 1;
  }

  /// Runs the best sequence again and records its launches and starts.
  LaunchSequence sequence() {
    std::vector<State> path;
    for (std::int32_t state = best_; state != kNone; state = states_[at(state)].from)
      path.push_back(states_[at(state)]);
    std::reverse(path.begin(), path.end());
    LaunchSequence result{.starts = std::vector<double>(chain_.segments.size(), kNoEnd), .seconds = shortest_};
    starts_ = &result.starts;
    Computing computing;
    for (std::size_t i = 1; i < path.size(); ++i) {
      Sendings const& before = path[i - 1].sent;
      Sendings const& after = path[i].sent;
      SequenceLaunch launch{.gathers = after.gathers > before.gathers, .computed = computing.segment};
      launch.begin = launch.gathers ? before.gathers : before.reductions;
      launch.end = launch.gathers ? after.gathers : after.reductions;
      launch.idle_s = has_computed_all(computing) ? 0 : path[i].decided_s - computing.now;
      while (computing.now < path[i].decided_s - kInstant && wait(computing, before, path[i].decided_s)) {
      }
      launch.start_s = computing.now;
      send(computing, before, after);
      launch.end_s = computing.now;
      result.launches.push_back(launch);
    }
    while (wait(computing, all())) {
    }
    starts_ = nullptr;
    return result;
  }

  SendChain const& chain_;
  SequenceRules const& rules_;
  std::int64_t slack_bytes_;
  double shortest_;
  std::vector<double> computed_behind_;  ///< by segment: seconds computed in it and all later ones
  std::vector<State> states_;
  std::vector<std::vector<std::int32_t>> ways_;  ///< states, by how many gathers and reductions were sent
  std::int32_t best_ = kNone;
  std::size_t launches_ = 0;               ///< that were tried
  std::vector<double>* starts_ = nullptr;  ///< filled in while sequence() runs, else null
};

}  // namespace

std::optional<LaunchSequence> best_launches(SendChain const& chain, SequenceRules const& rules) {
  return Sequencer(chain, rules).run();
}

}  // namespace weft
