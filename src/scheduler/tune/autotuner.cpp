#include "weft/autotuner.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "collectives/texts.hpp"
#include "core/log.hpp"
#include "scheduler/tune/median.hpp"
#include "scheduler/tune/successive_halving.hpp"
#include "scheduler/tune/training_place.hpp"
#include "scheduler/tune/tuned_settings.hpp"
#include "sharding/facts.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

void check(TuningSpace const& space, AutotunerOptions const& options) {
  auto const refuse = [](std::string const& what) { throw Error(ErrorCode::invalid_argument, "autotuner: " + what); };
  if (space.candidates.empty()) refuse("there are no candidates");
  std::set<std::string> names;
  for (TuningCandidate const& candidate : space.candidates) {
    if (!candidate.apply) refuse(fmt::format("candidate '{}' has nothing to apply", candidate.name));
    if (!names.insert(candidate.name).second) refuse(fmt::format("two candidates are called '{}'", candidate.name));
  }
  if (!(options.most_share > 0 && options.most_share <= 1)) {
    refuse(fmt::format("most_share is {}: expected more than 0, at most 1", options.most_share));
  }
  if (!(options.least_gain >= 0 && options.least_gain < 1)) {
    refuse(fmt::format("least_gain is {}: expected 0 or more, below 1", options.least_gain));
  }
}

/// Options of a communicator that exchanges a few numbers and words: without the link that the training emulates.
CommunicatorOptions for_exchange(CommunicatorOptions options) {
  options.emulated_link.reset();
  options.heap.reset();
  options.small_staging = true;
  options.name += options.name.empty() ? "autotuner" : " autotuner";
  return options;
}

void compare_ranks(Communicator& exchange, TuningSpace const& space, AutotunerOptions const& options) {
  std::vector<std::string> names;
  for (TuningCandidate const& candidate : space.candidates) names.push_back(candidate.name);
  Facts const facts{{"the model", space.model},
                    {"candidates", fmt::format("{}", fmt::join(names, "; "))},
                    {"training_steps", fmt::format("{}", options.training_steps)},
                    {"most_share", fmt::format("{}", options.most_share)},
                    {"warm_up", fmt::format("{}", options.warm_up)},
                    {"least_gain", fmt::format("{}", options.least_gain)},
                    {"workload", options.workload}};
  auto const difference = first_difference(exchange, facts);
  if (!difference) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("autotuner: {}; pass the same on every rank, or each would try something else", *difference));
}

/// The number of steps in which something may be tried.
std::size_t steps_to_try(AutotunerOptions const& options) {
  auto const most = static_cast<std::size_t>(options.most_share * static_cast<double>(options.training_steps));
  return most > options.warm_up ? most - options.warm_up : 0;
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f} ms", seconds * 1e3);
}

}  // namespace

class Autotuner::Impl {
 public:
  Impl(Communicator& communicator, TuningSpace space, AutotunerOptions options)
      : space_((check(space, options), std::move(space))),
        options_(std::move(options)),
        exchange_(communicator.duplicate(for_exchange(communicator.options()))),
        halving_(space_.candidates.size(), steps_to_try(options_), options_.least_gain),
        samples_(space_.candidates.size()) {
    compare_ranks(exchange_, space_, options_);
    std::string const place = describe_place(exchange_, communicator.options());
    training_ = fmt::format("{}; {}; {}", space_.model, options_.workload, place);
    if (auto const& path = communicator.options().config->autotune_cache) cache_.emplace(*path);
    if (!adopt_cached() && halving_.done()) settle_untried();
    if (!outcome_ && options_.warm_up == 0) begin_visit();
    last_end_ = Clock::now();
  }

  void end_step(bool counts) {
    if (outcome_) return;
    end_step(Clock::now() - last_end_, counts);
    last_end_ = Clock::now();  // the time that deciding and moving took belongs to no step
  }

  void end_step(std::chrono::nanoseconds took, bool counts) {
    if (outcome_) return;
    ++steps_;
    if (steps_ < options_.warm_up) return;
    if (steps_ == options_.warm_up) return begin_visit();
    ++in_visit_;
    if (in_visit_ > 1 && counts) samples_[current_].push_back(std::chrono::duration<double>(took).count());
    if (in_visit_ == visit_steps_) end_visit();
  }

  [[nodiscard]] std::optional<TuningOutcome> const& outcome() const noexcept { return outcome_; }

 private:
  [[nodiscard]] bool is_first() const noexcept { return exchange_.rank() == 0; }

  bool adopt_cached();
  void settle_untried();
  void begin_visit();
  void end_visit();
  [[nodiscard]] bool apply(std::size_t candidate);
  [[nodiscard]] double cost_of_current();
  void settle();
  void tell_outcome() const;

  TuningSpace space_;
  AutotunerOptions options_;
  Communicator exchange_;
  SuccessiveHalving halving_;
  std::vector<std::vector<double>> samples_;  ///< seconds of this rank's steps, by candidate
  std::string training_;                      ///< the name by which the cache knows this training
  std::optional<TunedSettings> cache_;
  std::optional<TuningOutcome> outcome_;
  std::size_t steps_ = 0;
  std::size_t current_ = 0;  ///< the candidate that is set
  std::size_t visit_steps_ = 0;
  std::size_t in_visit_ = 0;  ///< steps of this visit so far
  Clock::time_point last_end_;
};

// Only rank 0's file counts: the others may have another file, or none.
bool Autotuner::Impl::adopt_cached() {
  constexpr std::size_t kNumbers = 4;
  std::array<double, kNumbers> found{-1, 0, 0, 0};  // candidate, its time, the default's, candidates tried
  auto const stored = is_first() && cache_ ? cache_->find(training_) : std::nullopt;
  for (std::size_t i = 0; stored && i < space_.candidates.size(); ++i) {
    if (space_.candidates[i].name != stored->name || stored->candidates < halving_.tried()) continue;
    found = {static_cast<double>(i), stored->seconds, stored->default_seconds, static_cast<double>(stored->candidates)};
  }
  exchange_.broadcast(BufferView(std::span<double>(found)), 0).wait();
  if (found[0] < 0) return false;
  auto const candidate = static_cast<std::size_t>(found[0]);
  if (!apply(candidate)) return false;
  std::string const standard = broadcast_text(exchange_, stored ? stored->default_name : std::string());
  outcome_ = {space_.candidates[candidate].name,  found[1], standard, found[2],
              static_cast<std::size_t>(found[3]), 0,        true};
  tell_outcome();
  return true;
}

void Autotuner::Impl::settle_untried() {
  double const unknown = std::nan("");
  std::string const& standard = space_.candidates[0].name;
  outcome_ = {standard, unknown, standard, unknown, 0, 0, false};
  if (!is_first()) return;
  std::string const why = space_.candidates.size() == 1
                              ? "there is nothing else to try"
                              : fmt::format("{} steps, {:g} % of {}, are too few to try anything",
                                            steps_to_try(options_), 100 * options_.most_share, options_.training_steps);
  tell("autotune", fmt::format("{} stays as it is: {}", outcome_->setting, why));
}

// Returns false where a candidate cannot be set; then what was set before still is.
bool Autotuner::Impl::apply(std::size_t candidate) {
  if (candidate == current_) return true;
  try {
    space_.candidates[candidate].apply();
  } catch (Error const& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    return false;
  }
  current_ = candidate;
  return true;
}

void Autotuner::Impl::begin_visit() {
  while (!halving_.done() && !apply(halving_.visit().candidate)) {
    halving_.report(std::numeric_limits<double>::infinity(), 0);
  }
  if (halving_.done()) return settle();
  visit_steps_ = halving_.visit().steps;
  in_visit_ = 0;
}

// Where steps did not count on some rank, more steps make up for them as long as there may be any.
void Autotuner::Impl::end_visit() {
  double const cost = cost_of_current();
  std::size_t const more = halving_.visit().steps;
  if (std::isnan(cost) && halving_.may_take(in_visit_ + more)) {
    visit_steps_ += more;
    return;
  }
  halving_.report(cost, in_visit_);
  begin_visit();
}

// The cost of the current candidate; NaN where some rank has no sample.
double Autotuner::Impl::cost_of_current() {
  std::vector<double> const mine{median(samples_[current_])};
  std::vector<double> all(static_cast<std::size_t>(exchange_.size()));
  exchange_.all_gather(ConstBufferView(std::span(mine)), BufferView(std::span(all))).wait();
  return median(std::move(all));
}

void Autotuner::Impl::settle() {
  std::size_t best = halving_.best();
  if (!apply(best)) {
    best = 0;
    space_.candidates[best].apply();
  }
  outcome_ = {space_.candidates[best].name,
              halving_.cost(best),
              space_.candidates[0].name,
              halving_.cost(0),
              halving_.tried(),
              steps_,
              false};
  tell_outcome();
  bool const known = std::isfinite(outcome_->seconds) && std::isfinite(outcome_->default_seconds);
  if (is_first() && cache_ && known) {
    cache_->add(training_, {outcome_->setting, outcome_->seconds, outcome_->standard, outcome_->default_seconds,
                            outcome_->candidates});
  }
}

void Autotuner::Impl::tell_outcome() const {
  if (!is_first()) return;
  if (!std::isfinite(outcome_->seconds)) {
    tell("autotune",
         fmt::format("{} stays as it is: in {} steps none counted on every rank", outcome_->setting, steps_));
    return;
  }
  double const gain = 100 * (1 - outcome_->seconds / outcome_->default_seconds);
  std::string const gained =
      outcome_->setting == outcome_->standard
          ? fmt::format("{} a step, as it was: nothing tried was {:g} % faster", milliseconds(outcome_->seconds),
                        100 * options_.least_gain)
          : fmt::format("{} a step, {:.1f} % less than the {} with {}", milliseconds(outcome_->seconds), gain,
                        milliseconds(outcome_->default_seconds), outcome_->standard);
  std::string const how = outcome_->from_cache ? "found by an earlier run"
                                               : fmt::format("{} settings tried in {} of {} steps",
                                                             outcome_->candidates, steps_, options_.training_steps);
  tell("autotune", fmt::format("{}: {}; {}", outcome_->setting, gained, how));
}

Autotuner::Autotuner(Communicator& communicator, TuningSpace space, AutotunerOptions const& options)
    : impl_(std::make_unique<Impl>(communicator, std::move(space), options)) {}
Autotuner::~Autotuner() = default;
Autotuner::Autotuner(Autotuner&&) noexcept = default;
Autotuner& Autotuner::operator=(Autotuner&&) noexcept = default;

void Autotuner::end_step(bool counts) {
  impl_->end_step(counts);
}
void Autotuner::end_step(std::chrono::nanoseconds took, bool counts) {
  impl_->end_step(took, counts);
}
std::optional<TuningOutcome> const& Autotuner::outcome() const noexcept {
  return impl_->outcome();
}

}  // namespace weft
