#include "importers/kineto/operators.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_map>

#include "importers/common/json_input.hpp"

namespace weft::kineto {

namespace {

bool has(Event const& event, CollectiveEvidence evidence) {
  return event.collective && event.collective->evidence == evidence;
}
bool is_call(Event const& event) {
  return has(event, CollectiveEvidence::call);
}
bool is_optimizer(Event const& event) {
  return event.name.rfind("Optimizer.step", 0) == 0;
}
bool contains(Event const& event, char const* part) {
  return event.name.find(part) != std::string::npos;
}

}  // namespace

Operators::Operators(Events const& all, Forest const& forest)
    : all_(all),
      forest_(forest),
      launched_(all.events.size()),
      launcher_(all.events.size(), kNothing),
      call_of_(all.events.size(), kNothing),
      is_collective_(all.events.size(), false),
      apart_(all.events.size(), false),
      of_event_(all.events.size(), kNothing) {
  link_launches();
  choose_collectives();
  take_apart();
  order_device_lanes();
  add_all();
}

bool Operators::waits_for_all(Event const& event) {
  return event.kind == EventKind::runtime && contains(event, "DeviceSynchronize");
}
bool Operators::waits_for_one(Event const& event) {
  return event.kind == EventKind::runtime && !waits_for_all(event) && contains(event, "Synchronize");
}

bool Operators::within(std::size_t event, bool (*is)(Event const&)) const {
  for (auto around = forest_.parent(event); around != kNothing; around = forest_.parent(around)) {
    if (is(all_.events[around])) return true;
  }
  return false;
}

void Operators::link_launches() {
  constexpr auto kUntold = std::numeric_limits<std::int64_t>::min();
  auto const correlation = [&](Event const& event) {
    return event.args == nullptr ? kUntold : whole_in(*event.args, "correlation", kUntold);
  };
  std::unordered_map<std::int64_t, std::size_t> runtime;
  for (std::size_t i = 0; i < all_.events.size(); ++i) {
    auto const& event = all_.events[i];
    if (event.kind == EventKind::runtime && correlation(event) != kUntold) runtime.emplace(correlation(event), i);
  }
  for (std::size_t i = 0; i < all_.events.size(); ++i) {
    if (all_.events[i].kind != EventKind::device) continue;
    auto const found = runtime.find(correlation(all_.events[i]));
    if (found == runtime.end()) continue;
    launched_[found->second].push_back(i);
    launcher_[i] = found->second;
  }
}

void Operators::order_device_lanes() {
  on_device_.resize(all_.lanes.size());
  for (std::size_t i = 0; i < all_.events.size(); ++i) {
    if (all_.events[i].kind == EventKind::device) on_device_[all_.events[i].lane].push_back(i);
  }
  std::erase_if(on_device_, [](auto const& lane) { return lane.empty(); });
}

void Operators::choose_collectives() {
  auto const& events = all_.events;
  std::vector<bool> on_device(events.size(), false);  // calls that a kernel carries out
  bool kernels = false;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind != EventKind::device || !has(events[i], CollectiveEvidence::kernel)) continue;
    kernels = is_collective_[i] = true;
    for (auto around = launcher_[i]; around != kNothing; around = forest_.parent(around)) on_device[around] = true;
  }
  std::vector<std::size_t> calls;
  std::vector<std::size_t> titles;
  std::vector<bool> holds_call(events.size(), false);
  for (std::size_t i = events.size(); i-- > 0;) {  // events within others come before these
    auto const around = forest_.parent(i);
    if (around != kNothing && (holds_call[i] || is_call(events[i]))) holds_call[around] = true;
    bool const alone = has(events[i], CollectiveEvidence::params) && !within(i, is_call);
    if ((is_call(events[i]) || alone) && !holds_call[i] && !on_device[i]) calls.push_back(i);
    bool const shown = kernels && events[i].name.rfind("nccl:", 0) == 0;  // shows a kernel, which counts instead
    if (has(events[i], CollectiveEvidence::title) && !shown) titles.push_back(i);
  }
  std::reverse(calls.begin(), calls.end());
  std::reverse(titles.begin(), titles.end());
  match_titles(calls, titles);
}

/// Matches titles with calls: a back end takes calls in their order.
void Operators::match_titles(std::vector<std::size_t> const& calls, std::vector<std::size_t> const& titles) {
  std::size_t next = 0;
  for (auto const title : titles) {
    is_collective_[title] = true;
    if (next == calls.size()) continue;
    if (all_.events[calls[next]].start <= all_.events[title].start + kTolerance) call_of_[title] = calls[next++];
  }
  for (; next < calls.size(); ++next) is_collective_[calls[next]] = true;
}

void Operators::take_apart() {
  std::vector<bool> is_operator = is_collective_;
  for (auto const call : call_of_) {
    if (call != kNothing) is_operator[call] = true;
  }
  for (std::size_t i = 0; i < all_.events.size(); ++i) {
    auto const& event = all_.events[i];
    if (event.kind == EventKind::annotation && !is_collective_[i]) apart_[i] = true;
    bool const waits = waits_for_all(event) || waits_for_one(event);
    if (!is_operator[i] && launched_[i].empty() && !waits) continue;
    for (auto around = forest_.parent(i); around != kNothing; around = forest_.parent(around)) apart_[around] = true;
  }
}

void Operators::add_all() {
  for (std::size_t i = 0; i < all_.events.size(); ++i) {
    auto const around = forest_.parent(i);
    bool const is_part = around != kNothing && !apart_[around];
    if (is_part) {
      of_event_[i] = of_event_[around];
    } else if (all_.events[i].kind != EventKind::sync) {
      add(i);
    }
  }
  std::stable_sort(list_.begin(), list_.end(), [](Operator const& a, Operator const& b) { return a.start < b.start; });
  std::vector<std::size_t> place(all_.events.size(), kNothing);
  for (std::size_t i = 0; i < list_.size(); ++i) place[list_[i].event] = i;
  for (auto& of : of_event_) {
    if (of != kNothing) of = place[of];
  }
}

/// Adds an operator. Until all are there, of_event_ holds the operator's event.
void Operators::add(std::size_t i) {
  auto const& event = all_.events[i];
  Operator op{.event = i, .start = event.start, .time = apart_[i] ? forest_.own_time(i) : event.end - event.start};
  if (event.kind == EventKind::annotation && !is_collective_[i] && op.time <= kTolerance) return;
  for (auto const earlier : waited_for(i)) op.start = std::max(op.start, all_.events[earlier].end);
  op.time = std::min(op.time, std::max(0.0, event.end - op.start));
  op.is_collective = is_collective_[i];
  if (op.is_collective) op.call = call_of_[i] != kNothing ? call_of_[i] : i;
  if (op.is_collective && launcher_[i] != kNothing) op.call = launcher_[i];
  op.is_update = within(launcher_[i] != kNothing ? launcher_[i] : i, is_optimizer);
  of_event_[i] = i;
  list_.push_back(op);
}

std::vector<std::size_t> Operators::waited_for(std::size_t index) const {
  auto const& event = all_.events[index];
  std::vector<std::size_t> last;
  if (!waits_for_all(event) && !waits_for_one(event)) return last;
  for (auto const& lane : on_device_) {
    auto const behind = std::upper_bound(lane.begin(), lane.end(), event.end,
                                         [&](double end, std::size_t each) { return end < all_.events[each].start; });
    auto const found = std::find_if(std::make_reverse_iterator(behind), lane.rend(),
                                    [&](std::size_t each) { return all_.events[each].end <= event.end + kTolerance; });
    if (found != lane.rend()) last.push_back(*found);
  }
  if (waits_for_one(event) && last.size() > 1) {
    last = {*std::max_element(last.begin(), last.end(),
                              [&](std::size_t a, std::size_t b) { return all_.events[a].end < all_.events[b].end; })};
  }
  return last;
}

}  // namespace weft::kineto
