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
#include "scheduler/plan/launch_moves.hpp"
#include "scheduler/plan/replay_tasks.hpp"
#include "scheduler/plan/sequence_search.hpp"

namespace weft {

namespace {

constexpr double kXlaCombiner = 30 << 20;
constexpr std::uint64_t kRandomOrders = 8;
/// Up to this many operators every policy is tried, whatever the time limit.
constexpr std::size_t kAllPoliciesOperators = 100'000;
/// The search ends after this many plans. So planning takes about as long for graphs of any size up to 60,000
/// operators, and longer only beyond.
constexpr std::size_t kOperatorsLookedAt = 4'800'000;
constexpr std::size_t kLeastAttempts = 24;
constexpr std::size_t kMostAttempts = 280;
/// Likewise for send_as_ready(), with more for few operators (kFewOperators).
constexpr std::size_t kOperatorsSent = 200'000;
constexpr std::size_t kFewOperatorsSent = 300'000;
constexpr std::size_t kMostSent = 240;
/// Likewise for refine().
constexpr std::size_t kOperatorsMoved = 400'000;
/// Likewise for the orders of computing that sequence() looks at.
constexpr std::size_t kOperatorsSequenced = 100'000;
constexpr std::size_t kMostOrders = 40;
/// Graphs of up to this many operators are small: there more can be gained than planning costs.
constexpr std::size_t kFewOperators = 4'000;
constexpr std::size_t kMostMoves = 1'500;
/// In larger graphs a plan this near the bound is not improved further; and a part of the search ends where so many
/// rounds together brought less than this share.
constexpr double kEnough = 0.005;
constexpr double kRoundedBound = 1e-4;
constexpr std::size_t kPatience = 3;
constexpr double kLeastGain = 2e-4;
constexpr std::uint64_t kSampleSeed = 1;
/// Choices of one round, and how many rounds in a row may bring nothing that was not tried before (small graphs have
/// few ways to merge).
constexpr std::size_t kRound = 8;
constexpr int kMostRepeats = 6;
constexpr unsigned kMostThreads = 4;
constexpr std::size_t kLeaders = 3;
/// Plans longer than the best by more than this share are dropped; and how many others are kept.
constexpr double kNear = 0.002;
constexpr double kNearOfLarge = 0.005;
constexpr std::size_t kMostNear = 40;
/// This many of the shortest plans are also tried with operators that take other times.
constexpr std::size_t kMostReplayed = 20;
/// Sizes of buckets that settings() begins with, as parts of all that is sent.
constexpr std::array kSharesOfAll = {0.002, 0.008, 0.03, 0.12, 1.0};

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

/// Random numbers that are the same with every standard library.
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

/// The choice that stands for a policy that does not search (for SchedulePolicy::random: all but its seed).
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

std::vector<std::pair<std::size_t, double>> PlanSearch::try_all(std::vector<PlanChoice> const& choices) {
  std::vector<std::optional<PlanMaker::Draft>> drafts(choices.size());
  on_threads(choices.size(), [&](std::size_t i) { drafts[i] = planner_.draft(choices[i]); });
  for (auto& draft : drafts) {
    PlanChoice const& choice = draft->choice;
    if (!draft->problem ||
        !tried_.emplace(draft->launches, choice.rule, choice.depth, choice.window, choice.rush, choice.seed).second)
      draft.reset();
  }
  double const shortest = shortest_s();
  std::vector<Plan> plans(choices.size());
  std::vector<std::pair<std::size_t, double>> complete;
  on_threads(choices.size(), [&](std::size_t i) {
    if (drafts[i]) plans[i] = planner_.run(*std::move(drafts[i]), shortest * (1 + near()));
  });
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!plans[i].problem) continue;
    if (plans[i].run.complete) complete.emplace_back(i, plans[i].run.makespan_s);
    if (refined_ && plans[i].run.complete && score_of(plans[i]) < refined_->score) {
      refined_ = refined(choices[i], plans[i]);
    }
    take(choices[i], std::move(plans[i]));
  }
  return complete;
}

void PlanSearch::take(PlanChoice const& choice, Plan plan) {
  ++start_.attempts;
  if (plan.run.complete && plan.run.makespan_s < shortest_s()) {
    std::swap(start_.best, plan);
    start_.leaders.insert(start_.leaders.begin(), choice);
    if (start_.leaders.size() > kLeaders) start_.leaders.pop_back();
  }
  if (near_.size() >= kMostNear) {
    std::erase_if(near_, [&](Plan const& each) { return each.run.makespan_s > shortest_s() * (1 + near()); });
  }
  if (plan.problem && plan.run.complete && near_.size() < kMostNear) near_.push_back(std::move(plan));
  if (options_.progress) options_.progress({Clock::now() - began_, shortest_s(), planner_.bound().within_memory_s()});
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
  if (Clock::now() - began_ > options_.time_limit || (options_.stop && options_.stop())) return true;
  bool const all = !sampled_ || planner_.unmerged().tasks().size() <= kFewOperators;
  return shortest_s() <= planner_.bound().within_memory_s() * (1 + (all ? kRoundedBound : kEnough));
}

/// Tried first, so that the search is never worse than a policy.
void PlanSearch::policies() {
  bool const all = planner_.unmerged().tasks().size() <= kAllPoliciesOperators;
  for (auto const policy : {SchedulePolicy::asap, SchedulePolicy::prefetch1, SchedulePolicy::prefetch2,
                            SchedulePolicy::alap, SchedulePolicy::xla, SchedulePolicy::inductor, SchedulePolicy::random,
                            SchedulePolicy::blocking, SchedulePolicy::settings}) {
    if (all || !start_.best.problem || !is_over()) try_all(choices_of(policy));
  }
}

/// Tries random choices, for a part of the search: how far improve() gets depends much on where it begins.
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

/// Tries plans in which what is ready is sent when a link is idle: first by random rules, then by rules near the best
/// of those.
void PlanSearch::send_as_ready() {
  if (sent_bytes_ <= 0) return;
  Chance chance(kSampleSeed + 3);
  std::size_t const operators = std::max<std::size_t>(1, planner_.unmerged().tasks().size());
  std::size_t const sent = operators <= kFewOperators ? kFewOperatorsSent : kOperatorsSent;
  std::size_t const attempts = std::clamp(sent / operators, kRound, kMostSent);
  std::size_t const began = start_.attempts;
  PlanChoice best;
  double shortest = std::numeric_limits<double>::infinity();
  for (int repeats = 0; start_.attempts - began < attempts && repeats < kMostRepeats && !has_ended();) {
    std::vector<PlanChoice> choices(kRound);
    bool const near = best.send && start_.attempts - began >= attempts / 2;
    for (PlanChoice& choice : choices) {
      choice = near ? best : PlanChoice{.send = SendRules{}};
      SendRules& rules = *choice.send;
      auto const set = [&](double& value, double low, double high) {
        if (!near) value = chance.between(low, high);
        if (near && !chance.one_in(3)) value = std::clamp(value * chance.between(0.6, 1 / 0.6), low, high);
      };
      set(rules.ahead, 0.3, 3);
      set(rules.least_bytes, sent_bytes_ * 1e-4, sent_bytes_ * 0.03);
      set(rules.gather_bytes, sent_bytes_ * 1e-3, sent_bytes_ * 0.1);
      set(rules.reduce_bytes, sent_bytes_ * 1e-3, sent_bytes_ * 0.2);
      set(rules.share, 0.2, 1);
      set(rules.taper, 0.1, 1);
      if (!near || chance.one_in(4)) choice.window = chance.of(std::array{16, 64, 256, 1000});
      if (!near || chance.one_in(4)) choice.rush = chance.of(std::array{0.0, 0.01, 0.03});
    }
    std::size_t const before = start_.attempts;
    for (auto const& [choice, seconds] : try_all(choices)) {
      if (seconds < shortest) best = choices[choice];
      shortest = std::min(shortest, seconds);
    }
    if (start_.attempts == before) ++repeats;
  }
}

/// Tries the settings that users of other trainers could choose, so that no advice of theirs is shorter than the plan.
/// Only for few operators, as there are many settings.
void PlanSearch::settings() {
  if (sent_bytes_ <= 0 || planner_.unmerged().tasks().size() > kFewOperators) return;
  PlanChoice best = choice_of(SchedulePolicy::settings, {});
  double shortest = std::numeric_limits<double>::infinity();
  auto const look_at = [&](std::vector<PlanChoice> const& choices) {
    double const before = shortest;
    for (auto const& [choice, seconds] : try_all(choices)) {
      if (seconds < shortest) best = choices[choice];
      shortest = std::min(shortest, seconds);
    }
    return shortest < before;
  };
  std::vector<PlanChoice> choices;
  for (double const gathers : kSharesOfAll) {
    for (double const reductions : kSharesOfAll) {
      for (int const depth : {1, 2, 4}) {
        choices.push_back({.gather_bytes = gathers * sent_bytes_,
                           .reduce_bytes = reductions * sent_bytes_,
                           .share = 1,
                           .taper = 0,
                           .depth = depth});
      }
    }
  }
  for (bool better = look_at(choices); better && !has_ended(); better = look_at(choices)) {
    choices.clear();
    for (double const factor : {0.5, 0.7, 0.85, 1.2, 1.4, 2.0}) {
      choices.insert(choices.end(), 2, best);
      choices.back().gather_bytes *= factor;
      choices[choices.size() - 2].reduce_bytes *= factor;
    }
    for (int const depth : {1, 2, 3, 4}) {
      choices.push_back(best);
      choices.back().depth = depth;
    }
  }
}

/// Tries choices near the best ones, in smaller and smaller steps.
void PlanSearch::improve() {
  Chance chance(kSampleSeed + 1);
  double step = 4;
  bool const patient = planner_.unmerged().tasks().size() <= kFewOperators;
  std::vector<double> shortest_before;
  for (int repeats = 0; repeats < kMostRepeats && !is_over();) {
    shortest_before.push_back(shortest_s());
    std::size_t const rounds = shortest_before.size();
    if (!patient && rounds > kPatience && shortest_s() > shortest_before[rounds - 1 - kPatience] * (1 - kLeastGain)) {
      break;
    }
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

/// Looks for the best sequence of launches for what the best plan computes, in its order or another one.
void PlanSearch::sequence() {
  if (sent_bytes_ <= 0 || has_ended()) return;
  Problem const& unmerged = planner_.unmerged();
  std::vector<TaskId> order;
  for (TaskId const task : start_.best.run.started) {
    for (OpId const op : start_.best.problem->task(task).ops) order.push_back(unmerged.task_of(op));
  }
  auto found =
      search_sequence(unmerged, order,
                      {.capacity = planner_.capacity(),
                       .contention = planner_.contention(),
                       .below_s = shortest_s(),
                       .most_orders = std::clamp<std::size_t>(kOperatorsSequenced / order.size(), 1, kMostOrders)});
  if (!found) return;
  auto const told = std::make_shared<Merged const>(std::move(found->merged));
  try_all({{.merged = told}, {.rush = 0.01, .merged = told}});
}

/// Starting from the best plan, sends a few collectives at a time with others than before, launch by launch, until that
/// brings nothing more.
void PlanSearch::refine() {
  if (sent_bytes_ <= 0) return;
  Chance chance(kSampleSeed + 2);
  std::size_t const operators = planner_.unmerged().tasks().size();
  std::size_t const moves = operators <= kFewOperators ? kMostMoves : std::max(kOperatorsMoved / operators, kRound);
  std::size_t const until = start_.attempts + moves;
  refined_ = refined(start_.leaders.front(), start_.best);
  double worse = std::numeric_limits<double>::infinity();
  while (refined_->score < worse && start_.attempts < until && !has_ended()) {
    worse = refined_->score;
    rush();
    std::vector<OpId> fronts;
    for (auto const& launch : refined_->launches) fronts.push_back(launch.launch.front());
    while (!fronts.empty() && start_.attempts < until && !has_ended()) {
      std::swap(fronts[static_cast<std::size_t>(chance.share() * static_cast<double>(fronts.size()))], fronts.back());
      move(fronts.back());
      fronts.pop_back();
    }
  }
  refined_.reset();
}

PlanSearch::Refined PlanSearch::refined(PlanChoice choice, Plan const& plan) {
  choice.rule = StartRule::early;
  choice.send.reset();
  choice.merged = std::make_shared<Merged const>(arrangement_of(plan));
  return {std::move(choice), score_of(plan), launches_of(plan)};
}

void PlanSearch::rush() {
  std::vector<PlanChoice> choices;
  for (double const share : {0.0, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1}) {
    choices.push_back(refined_->choice);
    choices.back().rush = share;
  }
  try_all(choices);
}

void PlanSearch::move(OpId front) {
  for (auto const& launch : refined_->launches) {
    if (launch.launch.front() != front) continue;
    std::vector<PlanChoice> choices;
    for (auto const& instead : moves_of(launch)) {
      choices.push_back(refined_->choice);
      choices.back().merged =
          std::make_shared<Merged const>(rearranged(*refined_->choice.merged, planner_.unmerged().graph(), instead));
    }
    try_all(choices);
    return;
  }
}

Plan PlanSearch::best() {
  for (OpNode const& op : planner_.unmerged().graph().ops) {
    if (op.kind == OpKind::collective) sent_bytes_ += static_cast<double>(op.collective.bytes);
  }
  policies();
  double const rival_s = start_.best.run.makespan_s;
  sample();
  sampled_ = true;
  settings();
  improve();
  send_as_ready();
  sequence();
  refine();
  sequence();
  return steadiest(rival_s);
}

/// Chooses among the plans that are hardly longer than the best, and no longer than another policy's, each loosened:
/// takes the one that loses least against the other policies' plans where operators take other times. With few
/// operators it takes the shortest that loses nothing, if there is one.
Plan PlanSearch::steadiest(double rival_s) {
  double const most = std::min(rival_s, shortest_s() * (1 + near()));
  std::erase_if(near_, [&](Plan const& plan) { return plan.run.makespan_s > most; });
  near_.push_back(std::move(start_.best));
  std::stable_sort(near_.begin(), near_.end(),
                   [](Plan const& a, Plan const& b) { return a.run.makespan_s < b.run.makespan_s; });
  if (near_.size() > kMostReplayed) near_.resize(kMostReplayed);
  on_threads(near_.size(), [&](std::size_t i) { near_[i] = planner_.loosened(std::move(near_[i]), most); });
  Replayed least;
  least.fill(std::numeric_limits<double>::infinity());
  for (Replayed const& rival : replayed(rivals())) {
    for (std::size_t k = 0; k < least.size(); ++k) least[k] = std::min(least[k], rival[k]);
  }
  double const enough = planner_.unmerged().tasks().size() <= kFewOperators ? 1 : 0;
  std::size_t steadiest = 0;
  double least_loss = std::numeric_limits<double>::infinity();
  auto const replays = replayed(near_);
  for (std::size_t plan = 0; plan < near_.size() && least_loss > enough; ++plan) {
    double loss = 0;
    for (std::size_t k = 0; k < least.size(); ++k) loss = std::max(loss, replays[plan][k] / least[k]);
    if (loss < least_loss) steadiest = plan;
    least_loss = std::min(least_loss, loss);
  }
  return std::move(near_[steadiest]);
}

/// The other policies' plans.
std::vector<Plan> PlanSearch::rivals() const {
  if (planner_.unmerged().tasks().size() > kAllPoliciesOperators) return {};
  constexpr std::array policies = {SchedulePolicy::asap, SchedulePolicy::prefetch1, SchedulePolicy::prefetch2,
                                   SchedulePolicy::alap, SchedulePolicy::xla,       SchedulePolicy::inductor};
  std::vector<Plan> plans(policies.size());
  on_threads(plans.size(), [&](std::size_t i) {
    plans[i] = planner_.run(planner_.draft(choice_of(policies[i], options_.settings)));
  });
  return plans;
}

std::vector<PlanSearch::Replayed> PlanSearch::replayed(std::vector<Plan> const& plans) const {
  constexpr std::array disturbances = {Disturbance{.compute = 0.8, .communication = 1.2},
                                       Disturbance{.compute = 1.2, .communication = 0.8},
                                       Disturbance{.noise = 0.2, .seed = 71}, Disturbance{.noise = 0.2, .seed = 72}};
  static_assert(disturbances.size() == std::tuple_size_v<Replayed>);
  std::vector<Replayed> seconds(plans.size());
  on_threads(plans.size(), [&](std::size_t i) {
    for (std::size_t k = 0; k < disturbances.size(); ++k) {
      seconds[i][k] = replay_tasks(*plans[i].problem, plans[i].run.started, planner_.capacity(), planner_.contention(),
                                   disturbances[k]);
    }
  });
  return seconds;
}

double PlanSearch::near() const {
  return planner_.unmerged().tasks().size() <= kFewOperators ? kNear : kNearOfLarge;
}

}  // namespace weft
