#include "collectives/shm/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "collectives/explainer.hpp"

namespace weft::shm {
namespace {

/// The choice that follows `index` in `choices`, or `last` behind the last one.
Choice const& after(Choices const& choices, std::size_t index, Choice const& last) {
  return index + 1 < choices.size() && choices[index + 1].up_to > 0 ? choices[index + 1] : last;
}

/// Whether a call by `one` is no slower, and costs the loop clearly less.
bool wins(Cost const& one, Cost const& other, std::size_t bytes) {
  return one.loop_at(bytes) < (1 - kLeastGain) * other.loop_at(bytes) && one.call.at(bytes) <= other.call.at(bytes);
}

bool pays(Cost const& one, Cost const& other, std::size_t bytes) {
  auto const at = [&](Line const& line) { return Sample{bytes, line.at(bytes)}; };
  return pays(at(one.call), at(one.loop), at(other.call), at(other.loop));
}

/// Chooses two levels where they win over one at both ends of the sizes that a choice is for.
void tune_levels(Rules& rules, CostModel const& model, Collective collective) {
  auto const& levels = model.of(collective, Algorithm::two_level);
  auto const& fed = model.of(collective, Algorithm::fed);
  if (!levels.is_known() || !fed.is_known()) return;
  for (auto* choices : {&rules.small, &rules.other}) {
    for (auto& choice : *choices) {
      auto const most = std::min(choice.up_to, 4 * choice.chunk_bytes);
      if (choice.up_to == 0 || choice.algorithm != Algorithm::fed) continue;
      if (wins(levels, fed, most) && wins(levels, fed, most / 4)) choice.algorithm = Algorithm::two_level;
    }
  }
}

/// Whether the loop around calls would pay much more for `one`; then what was derived is kept.
bool is_dear(Cost const& one, Cost const& other, std::size_t bytes) {
  constexpr double kMost = 1.25;
  return one.loop_at(bytes) > kMost * other.loop_at(bytes);
}

/// Where `limit`, up to which `below` is taken and then `above`, should be.
std::size_t shifted(std::size_t limit, Cost const& below, Cost const& above) {
  auto const start = limit;
  for (int shift = 0; shift < kMostUp && pays(below, above, 2 * limit); ++shift) limit *= 2;
  if (limit != start) return limit;
  for (int shift = 0; shift < kMostDown && pays(above, below, limit) && !is_dear(above, below, limit); ++shift)
    limit /= 2;
  return limit;
}

/// Ends the last choice for any memory, `last`, at the smaller of two limits: one for calls in place, one for the rest.
/// From there to the larger one, the choice holds for that kind of symmetric memory only.
void end_at(Rules& rules, Choice& last, Choice const& in_place, Choice const& elsewhere) {
  auto const direct = rules.symmetric.front();
  last = in_place.up_to < elsewhere.up_to ? in_place : elsewhere;
  if (in_place.up_to > last.up_to) rules.in_place = {in_place, direct};
  if (elsewhere.up_to > last.up_to) rules.symmetric = {elsewhere, direct};
}

void tune(Rules& rules, CostModel const& model, Collective collective, std::size_t largest_block) {
  std::size_t least = 0;
  for (std::size_t index = 0; index < rules.small.size() && rules.small[index].up_to > 0; ++index) {
    auto& choice = rules.small[index];
    auto const& next = after(rules.small, index, rules.symmetric.front());
    // Whether one block takes the whole call, as it was derived. Blocks that change hands keep their size.
    auto const whole = choice.chunk_bytes == choice.up_to && choice.algorithm != Algorithm::swapped;
    auto const moved = [&](Place place) -> std::optional<Choice> {
      auto const& below = model.of(collective, choice.algorithm, place);
      auto const& above = model.of(collective, next.algorithm, place);
      if (!below.is_known() || !above.is_known()) return std::nullopt;
      auto limit = shifted(choice.up_to, below, above);
      if (whole) limit = std::min(limit, largest_block);
      limit = std::max(limit, least + 1);
      return Choice{limit, whole ? limit : choice.chunk_bytes, choice.algorithm};
    };
    auto const elsewhere = moved(Place::symmetric);
    if (choice.up_to == Choice::kUnlimited || !elsewhere) return;
    if (is_direct(next.algorithm))
      end_at(rules, choice, moved(Place::in_place).value_or(*elsewhere), *elsewhere);
    else
      choice = *elsewhere;
    least = choice.up_to;
  }
}

/// Stages long calls in symmetric memory, as far as the caches reach, where that wins over working in one another's
/// buffers.
void tune_long(Rules& rules, CostModel const& model, Collective collective) {
  auto staged = rules.other.front();
  auto const direct = *std::find_if(rules.symmetric.begin(), rules.symmetric.end(),
                                    [](Choice const& each) { return each.up_to == Choice::kUnlimited; });
  auto const& below = model.of(collective, staged.algorithm, Place::symmetric_long);
  auto const& above = model.of(collective, direct.algorithm, Place::symmetric_long);
  if (model.streaming_bytes == 0 || !below.is_known() || !above.is_known()) return;
  if (!pays(below, above, model.streaming_bytes)) return;
  staged.up_to = model.streaming_bytes;
  rules.symmetric = {staged, direct};
}

/// Decides whether private memory is fetched, as far as the caches reach; beyond them the derived choice stays.
void tune_private(Choices& choices, CostModel const& model, Collective collective) {
  auto const staged = choices.front();
  auto const beyond = *std::find_if(choices.begin(), choices.end(),
                                    [](Choice const& each) { return each.up_to == Choice::kUnlimited; });
  auto const& copied_twice = model.of(stand_in(collective), staged.algorithm, Place::private_long);
  auto const& copied_once = model.of(stand_in(collective), Algorithm::fetched, Place::private_long);
  auto const streaming = model.streaming_bytes;
  if (streaming <= kPrivateBytes || !copied_twice.is_known() || !copied_once.is_known()) return;
  auto const fetches = pays(copied_once, copied_twice, kPrivateBytes);
  if (!fetches && !pays(copied_twice, copied_once, kPrivateBytes)) return;
  choices = {Choice{fetches ? kPrivateBytes / 2 : streaming, staged.chunk_bytes, staged.algorithm}};
  auto* last = choices.data();
  if (fetches) *++last = {streaming, 0, Algorithm::fetched};
  if (last->algorithm == beyond.algorithm)
    last->up_to = Choice::kUnlimited;
  else
    *++last = beyond;
}

}  // namespace

Line fit(std::vector<Sample> const& samples) {
  // Least squares of relative errors: every sample weighs 1/ns².
  double weight = 0;
  double bytes = 0;
  double time = 0;
  double bytes_squared = 0;
  double bytes_time = 0;
  for (auto const& sample : samples) {
    auto const b = static_cast<double>(sample.bytes);
    auto const w = 1 / (sample.ns * sample.ns);
    weight += w;
    bytes += w * b;
    time += w * sample.ns;
    bytes_squared += w * b * b;
    bytes_time += w * b * sample.ns;
  }
  auto const determinant = weight * bytes_squared - bytes * bytes;
  if (samples.size() < 2 || determinant <= 0) return {};
  Line const line{(time * bytes_squared - bytes * bytes_time) / determinant,
                  (weight * bytes_time - bytes * time) / determinant};
  if (line.ns_per_byte < 0) return {time / weight, 0};
  if (line.fixed_ns < 0) return {0, bytes_time / bytes_squared};
  return line;
}

std::string describe(CostModel const& model, Collective collective, std::size_t bytes, Memory memory) {
  std::string predictions;
  auto place = Place::symmetric;
  if (memory == Memory::in_place && model.of(collective, Algorithm::direct, Place::in_place).is_known())
    place = Place::in_place;
  if (memory == Memory::symmetric && bytes >= kLongBytes &&
      model.of(collective, Algorithm::direct, Place::symmetric_long).is_known())
    place = Place::symmetric_long;
  if (memory == Memory::other && bytes > kPrivateBytes / 2 &&
      model.of(stand_in(collective), Algorithm::fetched, Place::private_long).is_known()) {
    place = Place::private_long;
    collective = stand_in(collective);
  }
  for (std::size_t a = 0; a < kAlgorithms; ++a) {
    auto const algorithm = static_cast<Algorithm>(a);
    auto const& cost = model.of(collective, algorithm, place);
    if (!cost.is_known() || (memory == Memory::other && is_direct(algorithm))) continue;
    predictions += fmt::format("{} {} {:.3g} / {:.3g} us", predictions.empty() ? "" : ",", to_string(algorithm),
                               cost.call.at(bytes) / 1000, cost.loop_at(bytes) / 1000);
  }
  if (predictions.empty()) return "derived from caches and cores, not measured";
  return fmt::format("predicted for {} as call / with its effects:{}", describe_bytes(bytes), predictions);
}

Selector tune(Selector const& derived, CostModel const& model, std::size_t largest_block) {
  auto tuned = derived;
  if (!model.is_measured()) return tuned;
  for (auto const collective : kDirect) {
    tune(tuned.rules(collective), model, collective, largest_block);
    tune_levels(tuned.rules(collective), model, collective);
  }
  for (auto const collective : kDirect) {
    auto const moved_down = tuned.staged_up_to(collective) < derived.staged_up_to(collective);
    if (!moved_down) tune_long(tuned.rules(collective), model, collective);
  }
  for (auto const collective : kFetching) tune_private(tuned.rules(collective).other, model, collective);
  return tuned;
}

}  // namespace weft::shm
