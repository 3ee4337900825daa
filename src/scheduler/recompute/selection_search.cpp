#include "scheduler/recompute/selection_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/recompute/cut_selection.hpp"

namespace weft {

namespace {

/// The number of prices that are tried, from one at which hardly anything is run again to one at which all is that can
/// be.
constexpr int kPrices = 20;
constexpr int kBisections = 8;
/// Rounds in which memory gets its price at the places where selections turned out to lack it.
constexpr int kRounds = 4;
/// From how many selections something is taken back, the cheapest first.
constexpr std::size_t kTakenBack = 4;
/// Pairs of operators are exchanged only where there are no more candidates than this.
constexpr std::size_t kMostExchanged = 40;
constexpr int kMostAdded = 200;

}  // namespace

SelectionSearch::SelectionSearch(StepOrder const& step, RecomputeOptions const& options)
    : step_(step), options_(options), began_(std::chrono::steady_clock::now()) {
  Selection const none{std::vector<bool>(step.graph().ops.size(), false),
                       std::vector<Place>(step.graph().ops.size(), kNever)};
  leanest_ = rewrite(step_, none, 0).value_or(Rewritten{});
}

bool SelectionSearch::is_over() const {
  return std::chrono::steady_clock::now() - began_ > options_.time_limit || (options_.stop && options_.stop());
}

std::vector<double> SelectionSearch::shortage_of(std::vector<std::int64_t> const& live) const {
  std::vector<double> shortage(live.size());
  double sum = 0;
  for (std::size_t i = 0; i < live.size(); ++i) {
    shortage[i] = static_cast<double>(std::max<std::int64_t>(0, live[i] - budget_));
    sum += shortage[i];
  }
  if (sum > 0) {
    for (double& each : shortage) each /= sum;
  }
  return shortage;
}

std::optional<SelectionSearch::Tried> SelectionSearch::attempt(Selection const& selection) {
  auto rewritten = rewrite(step_, selection, budget_);
  if (!rewritten) return std::nullopt;
  last_ = *std::move(rewritten);
  Tried tried{selection, last_.seconds, last_.peak_bytes};
  tried.selection.again.assign(tried.selection.again.size(), false);
  for (std::size_t i = 0; i < last_.original.size(); ++i) {
    // Operators that were moved count as well.
    if (last_.second[i]) tried.selection.again[at(last_.original[i])] = true;
  }
  if (last_.peak_bytes < leanest_.peak_bytes) leanest_ = last_;
  keep_best(tried);
  if (options_.progress) {
    options_.progress({std::chrono::steady_clock::now() - began_, leanest_.peak_bytes,
                       best_ ? best_->seconds : std::numeric_limits<double>::infinity()});
  }
  return tried;
}

void SelectionSearch::keep_best(Tried const& tried) {
  if (tried.peak_bytes <= budget_) {
    bool const cheaper = !best_ || tried.seconds < best_->seconds ||
                         (tried.seconds <= best_->seconds && tried.peak_bytes < best_->peak_bytes);
    if (cheaper) best_ = tried;
  } else if (!nearest_ || tried.peak_bytes < nearest_->peak_bytes) {
    nearest_ = tried;
  }
}

/// Tries prices from one at which the cut selects nothing to one at which it selects all it can; then prices between
/// two neighbours of which only the dearer one fits.
void SelectionSearch::try_prices(std::vector<double> const& shortage) {
  auto const late = late_places(step_, shortage);
  double lowest = std::numeric_limits<double>::infinity();
  double highest = 0;
  for (OpId const op : step_.order()) {
    if (!step_.may_repeat(op) || late[at(op)] == kNever) continue;
    double bytes = 0;
    for (TensorId const tensor : step_.graph().ops[at(op)].writes) {
      bytes += static_cast<double>(step_.graph().tensors[at(tensor)].bytes);
    }
    if (bytes <= 0 || step_.seconds(op) <= 0) continue;
    lowest = std::min(lowest, step_.seconds(op) / bytes);
    highest = std::max(highest, step_.seconds(op) / bytes);
  }
  if (highest <= 0) lowest = highest = 1;
  lowest /= 2;
  highest *= 1e3;
  std::optional<double> missed;
  std::optional<double> met;
  auto const fits = [&](double price) {
    auto const tried = attempt({select_by_cut(step_, late, shortage, price), late});
    if (!tried || tried->peak_bytes > budget_) return false;
    fitting_.push_back(*tried);
    return true;
  };
  for (int i = 0; i < kPrices && !is_over(); ++i) {
    double const price = lowest * std::pow(highest / lowest, static_cast<double>(i) / (kPrices - 1));
    if (!fits(price)) {
      if (!met) missed = price;
    } else if (!met) {
      met = price;
    }
  }
  if (!met || !missed) return;
  for (int i = 0; i < kBisections && !is_over(); ++i) {
    double const price = std::sqrt(*met * *missed);
    (fits(price) ? met : missed) = price;
  }
}

/// Whether running the operator again can free memory: what stands behind the highest peak frees nothing there.
bool SelectionSearch::may_free(OpId op) const {
  auto const& live = step_.live();
  auto const peak = std::max_element(live.begin(), live.end()) - live.begin();
  return step_.may_repeat(op) && step_.place(op) < peak;
}

/// Bytes that are held for early uses between each place and the next: few where a segment of a model ends.
std::vector<std::int64_t> SelectionSearch::crossing(std::vector<Place> const& late) const {
  std::vector<std::int64_t> bytes(step_.order().size() + 1, 0);
  for (OpId const op : step_.order()) {
    for (TensorId const tensor : step_.graph().ops[at(op)].writes) {
      Place const last = last_early_use(op, tensor, late);
      bytes[at(step_.place(op))] += step_.graph().tensors[at(tensor)].bytes;
      bytes[at(last)] -= step_.graph().tensors[at(tensor)].bytes;
    }
  }
  for (std::size_t i = 1; i < bytes.size(); ++i) bytes[i] += bytes[i - 1];
  return bytes;
}

Place SelectionSearch::last_early_use(OpId op, TensorId tensor, std::vector<Place> const& late) const {
  Place last = step_.place(op);
  for (OpId const reader : step_.readers(tensor)) {
    if (!reads_late(step_, late[at(op)], reader, tensor)) last = std::max(last, step_.place(reader));
  }
  return last;
}

/// Tries a selection that keeps only what is needed across the ends of `count` segments. The segments have about as
/// many idle bytes each and end where little is held (T. Chen et al., arXiv:1604.06174).
bool SelectionSearch::try_segments(std::vector<Place> const& late, std::size_t count) {
  auto const crosses = crossing(late);
  std::vector<double> idle(1, 0);  // by place: running sum of the bytes that are read late
  for (OpId const op : step_.order()) {
    double bytes = 0;
    for (TensorId const tensor : step_.graph().ops[at(op)].writes) {
      if (late[at(op)] != kNever) bytes += static_cast<double>(step_.graph().tensors[at(tensor)].bytes);
    }
    idle.push_back(idle.back() + bytes);
  }
  std::vector<Place> ends;
  double const each = idle.back() / static_cast<double>(count);
  for (std::size_t i = 1; i < count; ++i) {
    double const target = each * static_cast<double>(i);
    auto const begin = std::lower_bound(idle.begin() + 1, idle.end(), target - 0.4 * each) - idle.begin() - 1;
    auto const end = std::upper_bound(idle.begin() + 1, idle.end(), target + 0.4 * each) - idle.begin() - 1;
    if (begin >= end) continue;
    auto const least = std::min_element(crosses.begin() + begin, crosses.begin() + end);
    ends.push_back(static_cast<Place>(least - crosses.begin()));
  }
  Selection selection{std::vector<bool>(late.size(), false), late};
  for (OpId const op : step_.order()) {
    auto const& writes = step_.graph().ops[at(op)].writes;
    auto const end = std::lower_bound(ends.begin(), ends.end(), step_.place(op));
    bool const kept = end != ends.end() && std::any_of(writes.begin(), writes.end(), [&](TensorId tensor) {
                        return last_early_use(op, tensor, late) > *end;
                      });
    selection.again[at(op)] = may_free(op) && !kept;
  }
  auto const tried = attempt(selection);
  bool const fits = tried && tried->peak_bytes <= budget_;
  if (fits) fitting_.push_back(*tried);
  return fits;
}

/// Tries a selection that keeps what one layer gives to another, where operators know their layer: frameworks call this
/// checkpointing a layer.
void SelectionSearch::try_layers(std::vector<Place> const& late) {
  Selection selection{std::vector<bool>(late.size(), false), late};
  for (OpId const op : step_.order()) {
    OpNode const& node = step_.graph().ops[at(op)];
    if (node.layer == kNone || !may_free(op)) continue;
    selection.again[at(op)] = std::all_of(node.writes.begin(), node.writes.end(), [&](TensorId tensor) {
      auto const& readers = step_.readers(tensor);
      return std::all_of(readers.begin(), readers.end(),
                         [&](OpId reader) { return step_.graph().ops[at(reader)].layer == node.layer; });
    });
  }
  auto const tried = attempt(selection);
  if (tried && tried->peak_bytes <= budget_) fitting_.push_back(*tried);
}

void SelectionSearch::try_all_segments(std::vector<Place> const& late) {
  std::set<int> layers;
  std::size_t idle = 0;
  for (OpId const op : step_.order()) {
    if (step_.graph().ops[at(op)].layer != kNone) layers.insert(step_.graph().ops[at(op)].layer);
    idle += late[at(op)] != kNever ? 1 : 0;
  }
  if (!layers.empty()) try_layers(late);
  std::set<std::size_t> counts{1, 2, 3, 4, 5, std::max<std::size_t>(1, layers.size())};
  for (std::size_t count = 6; count <= idle; count += count / 4) counts.insert(count);
  for (std::size_t const count : counts) {
    if (count <= std::max<std::size_t>(1, idle) && !is_over()) try_segments(late, count);
  }
}

/// Adds the operators that free most bytes at the peak per second, at once as many as the peak is too high for.
bool SelectionSearch::add_for_peak(Selection& selection, Rewritten const& now, std::vector<bool>& refused) const {
  Place const peak = now.base[now.peak_at];
  struct Candidate {
    double seconds_per_byte;
    OpId op;
    std::int64_t bytes;
    Place late;
  };
  std::vector<Candidate> candidates;
  for (OpId const op : step_.order()) {
    if (step_.place(op) >= peak) break;
    if (selection[op] || refused[at(op)] || !step_.may_repeat(op)) continue;
    std::int64_t bytes = 0;
    Place late = kNever;
    bool in_use = false;
    for (TensorId const tensor : step_.graph().ops[at(op)].writes) {
      for (OpId const reader : step_.readers(tensor)) {
        in_use = in_use || step_.place(reader) == peak;
        if (step_.place(reader) <= peak || step_.writes_into(reader, tensor)) continue;
        late = std::min(late, step_.place(reader));
      }
      bool const idle = !step_.readers(tensor).empty() && step_.place(step_.readers(tensor).back()) > peak;
      if (idle && !step_.is_kept(tensor)) bytes += step_.graph().tensors[at(tensor)].bytes;
    }
    if (in_use || late == kNever || bytes <= 0) continue;
    candidates.push_back({step_.seconds(op) / static_cast<double>(bytes), op, bytes, late});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](auto const& a, auto const& b) { return a.seconds_per_byte < b.seconds_per_byte; });
  std::int64_t too_much = now.peak_bytes - budget_;
  bool added = false;
  for (Candidate const& candidate : candidates) {
    if (too_much <= 0) break;
    selection.again[at(candidate.op)] = true;
    selection.late[at(candidate.op)] = candidate.late;
    refused[at(candidate.op)] = true;  // so that it is not tried a second time
    too_much -= candidate.bytes;
    added = true;
  }
  return added;
}

void SelectionSearch::add_until_it_fits(Selection selection) {
  std::vector<bool> refused(step_.graph().ops.size(), false);
  auto now = attempt(selection);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  int idle = 0;
  for (int i = 0; i < kMostAdded && now && now->peak_bytes > budget_ && !is_over(); ++i) {
    idle = now->peak_bytes < least ? 0 : idle + 1;
    least = std::min(least, now->peak_bytes);
    if (idle > 8) return;
    if (!add_for_peak(selection, last_, refused)) return;
    now = attempt(selection);
  }
  if (now && now->peak_bytes <= budget_) fitting_.push_back(*now);
}

/// Takes operators out of a selection that still fits without them, the dearest first, and as many at a time as goes
/// well.
void SelectionSearch::take_back(Tried const& from) {
  Selection now = from.selection;
  std::vector<OpId> chosen;
  for (OpId const op : step_.order()) {
    if (now[op]) chosen.push_back(op);
  }
  auto const written = [&](OpId op) {
    double bytes = 1;
    for (TensorId const tensor : step_.graph().ops[at(op)].writes) {
      bytes += static_cast<double>(step_.graph().tensors[at(tensor)].bytes);
    }
    return bytes;
  };
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](OpId a, OpId b) { return step_.seconds(a) * written(b) > step_.seconds(b) * written(a); });
  std::size_t next = 0;
  std::size_t many = 1;
  while (next < chosen.size() && !is_over()) {
    many = std::min(many, chosen.size() - next);
    Selection less = now;
    for (std::size_t i = 0; i < many; ++i) less.again[at(chosen[next + i])] = false;
    auto const tried = attempt(less);
    if (tried && tried->peak_bytes <= budget_) {
      now = std::move(less);
      next += many;
      many *= 2;
    } else if (many > 1) {
      many /= 2;
    } else {
      ++next;
    }
  }
}

/// Starts from the best, or from what comes nearest to fitting, and tries one operator more, one less, or one for
/// another, as long as that helps.
void SelectionSearch::exchange() {
  std::vector<OpId> candidates;
  for (OpId const op : step_.order()) {
    if (step_.may_repeat(op)) candidates.push_back(op);
  }
  if (candidates.size() > kMostExchanged) return;
  auto const late = late_places(step_, shortage_of(step_.live()));
  bool better = true;
  while (better && !is_over()) {
    better = false;
    bool const fits = best_.has_value();
    Tried const from = fits ? *best_ : *nearest_;
    auto const flip = [&](std::vector<OpId> const& ops) {
      Selection other = from.selection;
      for (OpId const op : ops) {
        other.again[at(op)] = !other[op];
        if (other[op]) other.late[at(op)] = late[at(op)];
      }
      attempt(other);
      better = fits ? best_->seconds < from.seconds : best_ || nearest_->peak_bytes < from.peak_bytes;
    };
    for (std::size_t i = 0; i < candidates.size() && !better; ++i) {
      flip({candidates[i]});
      for (std::size_t j = 0; j < i && !better; ++j) flip({candidates[i], candidates[j]});
    }
  }
}

std::optional<Rewritten> SelectionSearch::run(std::int64_t budget) {
  budget_ = budget;
  best_.reset();
  nearest_.reset();
  fitting_.clear();
  std::size_t const ops = step_.graph().ops.size();
  Selection const none{std::vector<bool>(ops, false), std::vector<Place>(ops, kNever)};
  auto const as_given = attempt(none);
  if (as_given && as_given->peak_bytes <= budget) return last_;
  auto shortage = shortage_of(step_.live());
  for (int round = 0; round < kRounds && !is_over(); ++round) {
    nearest_.reset();
    try_prices(shortage);
    if (round == 0) try_all_segments(late_places(step_, shortage));
    if (best_ || !nearest_) break;
    // Memory now costs something also where the nearest of these selections lacks it.
    if (!attempt(nearest_->selection)) break;
    auto const lacks = shortage_of(last_.live);
    for (double& each : shortage) each /= 2;
    for (std::size_t i = 0; i < lacks.size(); ++i) shortage[at(last_.base[i])] += lacks[i] / 2;
  }
  if (nearest_) add_until_it_fits(nearest_->selection);
  if (!best_) add_until_it_fits(none);
  std::stable_sort(fitting_.begin(), fitting_.end(),
                   [](auto const& a, auto const& b) { return a.seconds < b.seconds; });
  for (std::size_t i = 0; i < std::min(kTakenBack, fitting_.size()) && !is_over(); ++i) take_back(fitting_[i]);
  exchange();
  if (!best_) return std::nullopt;
  return rewrite(step_, best_->selection, budget_);
}

}  // namespace weft
