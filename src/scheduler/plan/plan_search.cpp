#include "scheduler/plan/plan_search.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/replay_tasks.hpp"

namespace weft {

namespace {

constexpr double kXlaCombiner = 30 << 20;
constexpr std::uint64_t kRandomOrders = 8;
/// Up to so many operators every policy is tried, whatever the time limit.
constexpr std::size_t kAllPoliciesOperators = 100'000;
/// The search ends after so many plans: planning takes about as long for graphs of any size up to 60,000 operators, and
/// grows with the size beyond.
constexpr std::size_t kOperatorsLookedAt = 4'800'000;
constexpr std::size_t kLeastAttempts = 24;
constexpr std::size_t kMostAttempts = 280;
/// More plans, from launches of one size each; where graphs are so small that the search above comes to its end.
constexpr std::size_t kUniformAttempts = 200;
/// Likewise for the part of the search that moves single collectives.
constexpr std::size_t kOperatorsMoved = 800'000;
constexpr std::size_t kMostMoves = 400;
constexpr std::uint64_t kSampleSeed = 1;
/// Choices of one round, and how many rounds may bring nothing that was not tried before (small graphs have few ways to
/// merge).
constexpr std::size_t kRound = 8;
constexpr int kMostRepeats = 6;
constexpr unsigned kMostThreads = 4;
constexpr std::size_t kLeaders = 3;
/// Plans longer than the best by this share are not looked at further, and how many others are.
constexpr double kNear = 0.002;
constexpr std::size_t kMostNear = 40;

/// Calls work(0) to work(count - 1), each once, on several threads.
template <typename Work>
void on_threads(std::size_t count, Work const& work) {
  std::atomic<std::size_t> next{0};
  auto const some = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> helpers;
  std::size_t const wanted =
      std::min<std::size_t>(count, std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads));
  for (std::size_t i = 1; i < wanted; ++i) helpers.emplace_back(some);
  some();
}

/// Numbers by chance that are the same with every standard library.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(seed) {}
  double share() { return static_cast<double>(random_() >> 11) / static_cast<double>(std::uint64_t{1} << 53); }
  double between(double low, double high) { return low * std::pow(high / low, share()); }
  bool one_in(std::uint64_t n) { return random_() % n == 0; }
  template <typename T, std::size_t N>
  T of(std::array<T, N> const& all) {
    return all[random_() % N];
  }

 private:
  std::mt19937_64 random_;
};

/// The collectives of each launch, in the order in which they would be sent one by one.
std::vector<std::vector<OpId>> launches_of(Problem const& problem) {
  std::vector<std::vector<OpId>> launches;
  for (Task const& task : problem.tasks()) {
    if (problem.graph().ops[at(task.ops.front())].kind == OpKind::collective) launches.push_back(task.ops);
  }
  return launches;
}

/// One launch sent with the one before it, or in two; or some of its collectives sent with the one before it.
void move_some(std::map<OpId, bool>& joins, std::vector<OpId> const& launch, Chance& chance) {
  bool const splits = launch.size() > 1 && !chance.one_in(3);
  if (splits)
    joins[launch[1 + static_cast<std::size_t>(chance.share() * static_cast<double>(launch.size() - 1))]] = false;
  if (!splits || chance.one_in(2)) joins[launch.front()] = true;
}

/// The way of a policy that does not search (SchedulePolicy::random: but for its seed).
PlanChoice choice_of(SchedulePolicy policy, ScheduleSettings const& settings) {
  switch (policy) {
    case SchedulePolicy::weft:
    case SchedulePolicy::asap: return {};
    case SchedulePolicy::blocking: return {.rule = StartRule::blocking};
    case SchedulePolicy::alap: return {.rule = StartRule::late};
    case SchedulePolicy::prefetch1: return {.depth = 1};
    case SchedulePolicy::prefetch2: return {.depth = 2};
    case SchedulePolicy::xla:
      return {.rule = StartRule::late, .gather_bytes = kXlaCombiner, .reduce_bytes = kXlaCombiner, .share = 1};
    case SchedulePolicy::inductor: return {.rule = StartRule::raised};
    case SchedulePolicy::random: return {.rule = StartRule::random};
    case SchedulePolicy::settings:
      return {.gather_bytes = static_cast<double>(settings.gather_bytes),
              .reduce_bytes = static_cast<double>(settings.reduction_bytes),
              .share = 1,
              .taper = 0,
              .depth = settings.prefetch_depth};
  }
  return {};
}

}  // namespace

Plan PlanSearch::only(SchedulePolicy policy) {
  try_all(choices_of(policy));
  return std::move(start_.best);
}

std::vector<PlanChoice> PlanSearch::choices_of(SchedulePolicy policy) const {
  std::vector<PlanChoice> choices(policy == SchedulePolicy::random ? kRandomOrders : 1,
                                  choice_of(policy, options_.settings));
  for (std::uint64_t i = 0; i < choices.size(); ++i) choices[i].seed = options_.seed * kRandomOrders + i;
  return choices;
}

std::vector<std::size_t> PlanSearch::try_all(std::vector<PlanChoice> const& choices) {
  std::vector<std::optional<PlanMaker::Draft>> drafts(choices.size());
  on_threads(choices.size(), [&](std::size_t i) { drafts[i] = planner_.draft(choices[i]); });
  for (auto& draft : drafts) {
    PlanChoice const& choice = draft->choice;
    if (!tried_.emplace(draft->launches, choice.rule, choice.depth, choice.window, choice.rush, choice.seed).second)
      draft.reset();
  }
  double const shortest = shortest_s();
  std::vector<Plan> plans(choices.size());
  std::vector<std::size_t> shorter;
  on_threads(choices.size(), [&](std::size_t i) {
    if (drafts[i]) plans[i] = planner_.run(*std::move(drafts[i]), shortest * (1 + kNear));
  });
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!plans[i].problem) continue;
    if (plans[i].run.complete && plans[i].run.makespan_s < shortest) shorter.push_back(i);
    take(choices[i], std::move(plans[i]));
  }
  return shorter;
}

void PlanSearch::take(PlanChoice const& choice, Plan plan) {
  ++start_.attempts;
  if (plan.run.complete && plan.run.makespan_s < shortest_s()) {
    std::swap(start_.best, plan);
    start_.leaders.insert(start_.leaders.begin(), choice);
    if (start_.leaders.size() > kLeaders) start_.leaders.pop_back();
  }
  if (plan.problem && plan.run.complete && near_.size() < kMostNear) near_.push_back(std::move(plan));
  found_s_ = std::min(found_s_, shortest_s());
  if (options_.progress) options_.progress({Clock::now() - began_, found_s_, planner_.bound().within_memory_s()});
}

double PlanSearch::shortest_s() const {
  return start_.best.problem ? start_.best.run.makespan_s : std::numeric_limits<double>::infinity();
}

std::size_t PlanSearch::most_attempts() const {
  std::size_t const operators = std::max<std::size_t>(1, planner_.unmerged().tasks().size());
  return std::clamp(kOperatorsLookedAt / operators, kLeastAttempts, kMostAttempts);
}

bool PlanSearch::is_over() const {
  return start_.attempts > most_attempts() || has_ended();
}

bool PlanSearch::has_ended() const {
  if (Clock::now() - began_ > options_.time_limit) return true;
  return start_.best.run.makespan_s <= planner_.bound().within_memory_s() * (1 + 1e-4);
}

/// First, so that the search is never worse.
void PlanSearch::policies() {
  bool const all = planner_.unmerged().tasks().size() <= kAllPoliciesOperators;
  for (auto const policy : {SchedulePolicy::asap, SchedulePolicy::prefetch1, SchedulePolicy::prefetch2,
                            SchedulePolicy::alap, SchedulePolicy::xla, SchedulePolicy::inductor, SchedulePolicy::random,
                            SchedulePolicy::blocking, SchedulePolicy::settings}) {
    if (all || !start_.best.problem || !is_over()) try_all(choices_of(policy));
  }
}

/// Choices by chance, for a part of the search: how far one gets from the best depends much on where that lies.
void PlanSearch::sample() {
  std::vector<PlanChoice> choices;
  for (int const window : {0, 4, 16, 64}) choices.push_back({.window = window});
  for (double const share : {0.1, 0.3}) {
    for (double const taper : {0.2, 1.0}) {
      choices.push_back({.gather_bytes = sent_bytes_, .reduce_bytes = sent_bytes_, .share = share, .taper = taper});
    }
  }
  Chance chance(kSampleSeed);
  std::size_t const until = start_.attempts + most_attempts() / 3;
  for (int repeats = 0; start_.attempts < until && repeats < kMostRepeats && !is_over();) {
    std::size_t const before = start_.attempts;
    try_all(choices);
    if (start_.attempts == before) ++repeats;
    choices.resize(kRound);
    for (PlanChoice& choice : choices) {
      choice = {};
      choice.gather_bytes = chance.between(std::max(1.0, sent_bytes_ / 4096), std::max(1.0, sent_bytes_ / 8));
      choice.reduce_bytes = chance.between(std::max(1.0, sent_bytes_ / 4096), std::max(1.0, sent_bytes_ / 8));
      choice.share = chance.between(0.05, 1);
      choice.taper = chance.between(0.1, 5);
      choice.depth = chance.of(std::array{0, 0, 1, 2, 3, 4});
      choice.window = chance.one_in(4) ? 16 : 1000;
    }
  }
}

/// Launches of one size each, as a trainer's settings have them: improved from there, some get shorter than what is
/// found from launches that grow. The shorter of both starts is kept.
void PlanSearch::uniform() {
  if (most_attempts() < kMostAttempts || has_ended()) return;
  Start grown = std::exchange(start_, {});
  std::vector<PlanChoice> choices;
  for (double const gathers : {8, 12, 16, 24, 32, 48, 64, 96, 128}) {
    for (double const reductions : {8, 12, 16, 24, 32, 48, 64, 96, 128}) {
      choices.push_back(
          {.gather_bytes = sent_bytes_ / gathers, .reduce_bytes = sent_bytes_ / reductions, .share = 1, .taper = 0});
    }
  }
  try_all(choices);
  start_.attempts += kMostAttempts - kUniformAttempts;
  if (start_.best.problem) {
    improve();
    refine();
  }
  if (grown.best.run.makespan_s <= shortest_s()) std::swap(start_, grown);
  if (grown.best.problem) near_.push_back(std::move(grown.best));
}

/// Choices near the best ones, in smaller and smaller steps.
void PlanSearch::improve() {
  Chance chance(kSampleSeed + 1);
  double step = 4;
  for (int repeats = 0; repeats < kMostRepeats && !is_over();) {
    std::vector<PlanChoice> choices;
    for (std::size_t i = 0; i < kRound; ++i) {
      PlanChoice choice = start_.leaders[i % 2 == 0 ? 0 : (i / 2) % start_.leaders.size()];
      if (choice.rule != StartRule::early) choice = {};
      if (choice.gather_bytes <= 0) choice.gather_bytes = choice.reduce_bytes = sent_bytes_ / 64;
      auto const moved = [&](double value) {
        return chance.one_in(3) ? value : value * chance.between(1 / step, step);
      };
      choice.gather_bytes = moved(choice.gather_bytes);
      choice.reduce_bytes = moved(choice.reduce_bytes);
      choice.share = std::min(1.0, moved(choice.share));
      choice.taper = moved(choice.taper);
      if (chance.one_in(4)) choice.depth = chance.of(std::array{0, 1, 2, 3, 4});
      if (chance.one_in(4)) choice.window = chance.of(std::array{0, 4, 16, 64, 256, 1000});
      if (chance.one_in(4)) choice.rush = chance.of(std::array{0.0, 0.01, 0.03, 0.1});
      choices.push_back(choice);
    }
    std::size_t const before = start_.attempts;
    double const shortest = shortest_s();
    try_all(choices);
    if (start_.attempts == before) ++repeats;
    if (shortest_s() > shortest * (1 - 1e-3)) step = std::max(1.1, 1 + (step - 1) * 0.85);
  }
}

/// From the best plan, a few collectives at a time sent with others than they were.
void PlanSearch::refine() {
  Chance chance(kSampleSeed + 2);
  std::optional<PlanChoice> together;  // what made plans of the last round shorter
  if (sent_bytes_ <= 0) return;
  std::size_t const moves = std::clamp(kOperatorsMoved / planner_.unmerged().tasks().size(), kRound, kMostMoves);
  int repeats = 0;
  for (std::size_t i = 0; i < moves && repeats < kMostRepeats && !has_ended(); i += kRound) {
    auto const launches = launches_of(*start_.best.problem);
    std::vector<PlanChoice> choices(kRound, start_.leaders.front());
    for (PlanChoice& choice : choices) {
      for (bool again = true; again; again = chance.one_in(2)) {
        move_some(choice.joins,
                  launches[static_cast<std::size_t>(chance.share() * static_cast<double>(launches.size()))], chance);
      }
    }
    if (together) choices.front() = *std::exchange(together, std::nullopt);
    PlanChoice all = start_.leaders.front();
    std::size_t const before = start_.attempts;
    auto const shorter = try_all(choices);
    if (start_.attempts == before) ++repeats;
    for (std::size_t const each : shorter) {
      for (auto const& [op, joined] : choices[each].joins) all.joins[op] = joined;
    }
    if (shorter.size() > 1) together = std::move(all);
  }
}

Plan PlanSearch::best() {
  for (OpNode const& op : planner_.unmerged().graph().ops) {
    if (op.kind == OpKind::collective) sent_bytes_ += static_cast<double>(op.collective.bytes);
  }
  policies();
  double const rival_s = start_.best.run.makespan_s;
  sample();
  improve();
  refine();
  uniform();
  return steadiest(rival_s);
}

/// Of the plans that are hardly longer than the best, that which suffers least when sending takes longer and computing
/// shorter than planned, or the reverse; but none that is longer than another policy's.
Plan PlanSearch::steadiest(double rival_s) {
  constexpr std::array<Disturbance, 2> disturbances = {Disturbance{.compute = 0.8, .communication = 1.2},
                                                       Disturbance{.compute = 1.2, .communication = 0.8}};
  using Times = std::array<double, disturbances.size()>;
  constexpr double never = std::numeric_limits<double>::infinity();
  double const most = std::min(rival_s, start_.best.run.makespan_s * (1 + kNear));
  near_.erase(std::remove_if(near_.begin(), near_.end(), [&](Plan const& plan) { return plan.run.makespan_s > most; }),
              near_.end());
  near_.push_back(std::move(start_.best));
  std::vector<Times> replayed(near_.size());
  on_threads(near_.size(), [&](std::size_t i) {
    for (std::size_t k = 0; k < disturbances.size(); ++k) {
      replayed[i][k] = replay_tasks(*near_[i].problem, near_[i].run.started, planner_.capacity(), planner_.contention(),
                                    disturbances[k]);
    }
  });
  Times least;
  least.fill(never);
  for (Times const& times : replayed) {
    for (std::size_t k = 0; k < times.size(); ++k) least[k] = std::min(least[k], times[k]);
  }
  auto const loss = [&](std::size_t plan) {
    double worst = 0;
    for (std::size_t k = 0; k < least.size(); ++k) worst = std::max(worst, replayed[plan][k] / least[k]);
    return worst;
  };
  std::size_t steadiest = near_.size() - 1;
  for (std::size_t plan = 0; plan < near_.size(); ++plan) {
    if (loss(plan) < loss(steadiest)) steadiest = plan;
  }
  return std::move(near_[steadiest]);
}

}  // namespace weft
