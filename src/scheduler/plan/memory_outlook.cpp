#include "scheduler/plan/memory_outlook.hpp"

#include <algorithm>
#include <cstddef>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/serial_order.hpp"

namespace weft {

namespace {

std::vector<std::int32_t> places_of(std::vector<TaskId> const& order) {
  std::vector<std::int32_t> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) places[at(order[i])] = static_cast<std::int32_t>(i);
  return places;
}

}  // namespace

MemoryOutlook::MemoryOutlook(Problem const& problem, std::vector<TaskId> const& order)
    : problem_(problem),
      order_(order),
      position_(places_of(order)),
      started_(order.size(), false),
      serial_(serial_live(problem, order)) {
  auto const& storages = problem.storages();
  by_position_.resize(storages.size());
  passed_.assign(storages.size(), 0);
  unended_.resize(storages.size());
  for (std::size_t i = 0; i < storages.size(); ++i) {
    Storage const& storage = storages[i];
    by_position_[i].reserve(storage.users.size());
    for (TaskId const user : storage.users) by_position_[i].push_back(position(user));
    std::sort(by_position_[i].rbegin(), by_position_[i].rend());
    unended_[i] = static_cast<std::int32_t>(storage.users.size());
    if (storage.users.empty() && !storage.kept) continue;
    if (storage.first == kNone) live_ += storage.bytes;
  }
  peak_ = live_;
}

std::int32_t MemoryOutlook::last_but(std::int32_t storage, TaskId task) const {
  auto const& users = by_position_[at(storage)];
  for (std::size_t i = passed_[at(storage)]; i < users.size(); ++i) {
    TaskId const user = order_[at(users[i])];
    if (user != task && !started_[at(user)]) return users[i];
  }
  return kNone;
}

/// Applies what starting `task` does to the outlook (sign 1), or takes it back (-1).
void MemoryOutlook::change(TaskId task, int sign) {
  auto const end = static_cast<std::int32_t>(order_.size());
  std::int32_t const here = position(task);
  serial_.add(here, here + 1, sign * RangeMax::kGone);
  for (auto const id : problem_.uses(task)) {
    Storage const& storage = problem_.storages()[at(id)];
    std::int64_t const bytes = sign * storage.bytes;
    std::int32_t const rest = last_but(id, task);
    std::int32_t const last = storage.kept ? end - 1 : std::max(here, rest);
    std::int32_t const then = storage.kept ? end - 1 : rest;  // kNone: no user is left
    if (storage.first == task) {
      // In the outlook the storage was there from `here` on; once the task has started it is there from the beginning,
      // as long as a user is left.
      serial_.add(0, std::min(here, then + 1), bytes);
      serial_.add(std::max(then + 1, here), last + 1, -bytes);
    } else {
      serial_.add(then + 1, last + 1, -bytes);
    }
  }
}

MemoryOutlook::Prospect MemoryOutlook::prospect(TaskId task) {
  std::int64_t const live = live_ + problem_.made_by(task);
  change(task, 1);
  std::int64_t const then = outlook();
  change(task, -1);
  return {live, then};
}

bool MemoryOutlook::is_safe(TaskId task, std::int64_t capacity) {
  std::int64_t const made = problem_.made_by(task);
  if (live_ + made > capacity) return false;
  // The task can add no more than what it makes, at any place.
  return outlook() + made <= capacity || prospect(task).outlook <= capacity;
}

void MemoryOutlook::start(TaskId task) {
  change(task, 1);
  started_[at(task)] = true;
  live_ += problem_.made_by(task);
  for (auto const id : problem_.uses(task)) {
    auto const& users = by_position_[at(id)];
    std::size_t& passed = passed_[at(id)];
    while (passed < users.size() && started_[at(order_[at(users[passed])])]) ++passed;
  }
  peak_ = std::max(peak_, live_);
}

void MemoryOutlook::end(TaskId task) {
  for (auto const id : problem_.uses(task)) {
    if (--unended_[at(id)] == 0 && !problem_.storages()[at(id)].kept) live_ -= problem_.storages()[at(id)].bytes;
  }
}

}  // namespace weft
