#include "scheduler/plan/send_when_ready.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/memory_outlook.hpp"

namespace weft {

namespace {

constexpr int kMostPassedOver = 8;

class Sender {
 public:
  Sender(Problem const& problem, std::vector<TaskId> const& serial, SendRules const& rules)
      : problem_(problem),
        serial_(serial),
        rules_(rules),
        memory_(problem, serial),
        waits_for_(serial.size()),
        started_(serial.size(), false),
        deadline_(serial.size(), kNoDeadline) {
    find_deadlines();
    for (TaskId const task : serial) {
      if (!has_deadline(task) && is_link(problem.task(task).resource)) unsent_ += bytes(task);
      waits_for_[at(task)] = problem.before(task).size();
      if (waits_for_[at(task)] == 0) make_ready(task);
    }
  }

  Sent run() {
    start_what_can();
    while (sent_.started.size() < serial_.size() || running() > 0) {
      if (running() > 0) step();
      start_what_can();
      if (running() == 0) start_next_of_serial();
    }
    return std::move(sent_);
  }

 private:
  static constexpr double kNoDeadline = std::numeric_limits<double>::infinity();
  using Ready = std::set<std::pair<double, TaskId>>;
  struct Slot {
    std::vector<TaskId> tasks{};
    double left_s = 0;
  };

  static std::size_t slot_of(Resource resource) { return static_cast<std::size_t>(resource); }
  [[nodiscard]] OpNode const& node(TaskId task) const {
    return problem_.graph().ops[at(problem_.task(task).ops.front())];
  }
  [[nodiscard]] double bytes(TaskId task) const { return static_cast<double>(node(task).collective.bytes); }
  [[nodiscard]] bool has_deadline(TaskId task) const { return deadline_[at(task)] < kNoDeadline; }
  [[nodiscard]] int running() const {
    int count = 0;
    for (Slot const& slot : slots_) count += slot.tasks.empty() ? 0 : 1;
    return count;
  }

  /// Deadlines, for collectives that something else than an update waits for: the seconds that are computed before the
  /// first use, in the serial order.
  void find_deadlines() {
    std::vector<double> until(serial_.size());
    double computed = 0;
    for (TaskId const task : serial_) {
      until[at(task)] = computed;
      if (problem_.task(task).resource == Resource::compute) computed += problem_.task(task).seconds;
    }
    for (TaskId const task : serial_) {
      if (!is_link(problem_.task(task).resource)) continue;
      for (TaskId const later : problem_.after(task)) {
        if (node(later).kind == OpKind::update) continue;
        deadline_[at(task)] = std::min(deadline_[at(task)], until[at(later)]);
      }
    }
  }

  void make_ready(TaskId task) {
    Resource const resource = problem_.task(task).resource;
    if (is_link(resource) && !has_deadline(task)) {
      relaxed_[slot_of(resource)].emplace(memory_.position(task), task);
      backlog_[slot_of(resource)] += bytes(task);
    } else {
      ready_[slot_of(resource)].emplace(is_link(resource) ? deadline_[at(task)] : memory_.position(task), task);
    }
  }

  void start_what_can() {
    bool started = true;
    while (started) {
      started = false;
      for (auto const resource : {Resource::copy, Resource::compute}) {
        while (slots_[slot_of(resource)].tasks.empty() && start_one(slot_of(resource))) started = true;
      }
      for (auto const resource : {Resource::between_hosts, Resource::within_host}) {
        while (slots_[slot_of(resource)].tasks.empty() && send(slot_of(resource))) started = true;
      }
    }
  }

  [[nodiscard]] bool fits(TaskId task) { return memory_.is_safe(task, rules_.capacity); }

  bool start_one(std::size_t slot) {
    int tries = 0;
    for (auto candidate = ready_[slot].begin(); candidate != ready_[slot].end() && tries < kMostPassedOver;
         ++candidate, ++tries) {
      TaskId const task = candidate->second;
      if (!within_window(task) || !fits(task)) continue;
      ready_[slot].erase(candidate);
      start(slot, task, problem_.task(task).seconds);
      return true;
    }
    return false;
  }

  bool within_window(TaskId task) {
    pass_computed();
    return memory_.position(task) - static_cast<std::int64_t>(first_uncomputed_) <= rules_.window;
  }

  void pass_computed() {
    while (first_uncomputed_ < serial_.size()) {
      TaskId const task = serial_[first_uncomputed_];
      if (!started_[at(task)] && problem_.task(task).resource == Resource::compute) return;
      if (problem_.task(task).resource == Resource::compute) passed_s_ += problem_.task(task).seconds;
      ++first_uncomputed_;
    }
  }

  bool send(std::size_t slot) {
    auto const& urgent = ready_[slot];
    double const time = urgent.empty() ? kNoDeadline : time_until(urgent.begin()->first);
    bool const idle = slots_[slot_of(Resource::compute)].tasks.empty();
    double const enough = std::min(rules_.reduce_bytes, rules_.taper * (unsent_ - backlog_[slot]));
    if (!relaxed_[slot].empty() && (idle || backlog_[slot] >= enough) && send_relaxed(slot, time)) return true;
    return send_urgent(slot, time) || (idle && send_relaxed(slot, kNoDeadline));
  }

  /// Seconds until everything that is computed before `deadline` has been computed.
  double time_until(double deadline) {
    pass_computed();
    return std::max(0.0, (deadline - passed_s_) * (1 + rules_.contention) + slots_[slot_of(Resource::compute)].left_s);
  }

  bool send_relaxed(std::size_t slot, double time) {
    std::vector<TaskId> batch;
    double seconds = 0;
    for (auto next = relaxed_[slot].begin(); next != relaxed_[slot].end();) {
      TaskId const task = next->second;
      double const longer = seconds + added(task, batch);
      if (!alike(task, batch) || longer > time || !fits(task)) break;
      seconds = longer;
      next = relaxed_[slot].erase(next);
      backlog_[slot] -= bytes(task);
      unsent_ -= bytes(task);
      take(task, batch);
    }
    return launch(slot, std::move(batch), seconds);
  }

  bool send_urgent(std::size_t slot, double time) {
    std::vector<TaskId> batch;
    std::vector<std::pair<double, TaskId>> chosen;
    double seconds = 0;
    double sent = 0;
    double made = 0;
    auto const room = static_cast<double>(rules_.capacity - memory_.outlook()) * rules_.share;
    bool limited = false;  // whether memory kept the batch from growing
    for (auto const& [deadline, task] : ready_[slot]) {
      double const longer = seconds + added(task, batch);
      if (!alike(task, batch)) break;
      if (sent >= rules_.least_bytes && !batch.empty() && longer > rules_.ahead * time) break;
      made += static_cast<double>(problem_.made_by(task));
      if (made > room) {
        limited = true;
        break;
      }
      seconds = longer;
      sent += bytes(task);
      batch.push_back(task);
      chosen.emplace_back(deadline, task);
    }
    // A small batch waits for more memory while there is time.
    if (batch.empty() || (limited && sent < rules_.gather_bytes && seconds * 1.5 < time)) return false;
    std::vector<TaskId> fitting;
    seconds = 0;
    for (auto const& each : chosen) {
      if (!fits(each.second)) break;
      seconds += added(each.second, fitting);
      ready_[slot].erase(each);
      take(each.second, fitting);
    }
    return launch(slot, std::move(fitting), seconds);
  }

  [[nodiscard]] bool alike(TaskId task, std::vector<TaskId> const& batch) const {
    if (batch.empty()) return true;
    auto const& a = node(task);
    auto const& b = node(batch.front());
    return a.collective.kind == b.collective.kind && a.collective.group == b.collective.group &&
           a.seconds.has_value() == b.seconds.has_value();
  }

  [[nodiscard]] double added(TaskId task, std::vector<TaskId> const& batch) const {
    return problem_.task(task).seconds - (batch.empty() ? 0 : problem_.task(task).latency_s);
  }

  void take(TaskId task, std::vector<TaskId>& batch) {
    memory_.start(task);
    started_[at(task)] = true;
    batch.push_back(task);
    for (OpId const op : problem_.task(task).ops) sent_.started.push_back(op);
  }

  bool launch(std::size_t slot, std::vector<TaskId> batch, double seconds) {
    if (batch.empty()) return false;
    if (batch.size() > 1) {
      auto& ops = sent_.launches.emplace_back();
      for (TaskId const task : batch) ops.push_back(problem_.task(task).ops.front());
    }
    slots_[slot] = {std::move(batch), seconds};
    if (ends_at_once(slot)) end(slot);
    return true;
  }

  void start(std::size_t slot, TaskId task, double seconds) {
    std::vector<TaskId> batch;
    take(task, batch);
    slots_[slot] = {std::move(batch), seconds};
    if (ends_at_once(slot)) end(slot);
  }

  /// Used where everything that was tried has to wait. This task never has to: nothing else runs.
  void start_next_of_serial() {
    while (first_open_ < serial_.size() && started_[at(serial_[first_open_])]) ++first_open_;
    if (first_open_ == serial_.size()) return;
    TaskId const task = serial_[first_open_];
    Resource const resource = problem_.task(task).resource;
    std::size_t const slot = slot_of(resource);
    if (is_link(resource) && !has_deadline(task)) {
      relaxed_[slot].erase({memory_.position(task), task});
      backlog_[slot] -= bytes(task);
      unsent_ -= bytes(task);
    } else {
      ready_[slot].erase({is_link(resource) ? deadline_[at(task)] : memory_.position(task), task});
    }
    start(slot, task, problem_.task(task).seconds);
  }

  [[nodiscard]] double speed(std::size_t slot) const {
    bool const sending = !slots_[slot_of(Resource::between_hosts)].tasks.empty() ||
                         !slots_[slot_of(Resource::within_host)].tasks.empty();
    return slot == slot_of(Resource::compute) && sending ? 1 / (1 + rules_.contention) : 1;
  }
  [[nodiscard]] bool ends_at_once(std::size_t slot) const { return now_ + slots_[slot].left_s / speed(slot) <= now_; }

  void end(std::size_t slot) {
    auto const tasks = std::exchange(slots_[slot].tasks, {});
    slots_[slot].left_s = 0;
    for (TaskId const task : tasks) memory_.end(task);
    for (TaskId const task : tasks) {
      for (TaskId const later : problem_.after(task)) {
        if (--waits_for_[at(later)] == 0) make_ready(later);
      }
    }
  }

  void step() {
    double next = std::numeric_limits<double>::infinity();
    std::array<double, kResources> speeds{};
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].tasks.empty()) continue;
      speeds[slot] = speed(slot);
      next = std::min(next, slots_[slot].left_s / speeds[slot]);
    }
    now_ += next;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].tasks.empty()) continue;
      bool const ends = slots_[slot].left_s / speeds[slot] <= next * (1 + 1e-12);
      slots_[slot].left_s = ends ? 0 : slots_[slot].left_s - next * speeds[slot];
    }
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot].tasks.empty() && ends_at_once(slot)) end(slot);
    }
  }

  Problem const& problem_;
  std::vector<TaskId> const& serial_;
  SendRules const& rules_;
  MemoryOutlook memory_;
  std::vector<std::size_t> waits_for_;
  std::vector<bool> started_;
  std::vector<double> deadline_;
  std::array<Ready, kResources> ready_;
  std::array<Ready, kResources> relaxed_;
  std::array<double, kResources> backlog_{};  ///< bytes in relaxed_
  std::array<Slot, kResources> slots_;
  double unsent_ = 0;  ///< bytes without a deadline that have not been sent
  double passed_s_ = 0;
  std::size_t first_open_ = 0;
  std::size_t first_uncomputed_ = 0;
  double now_ = 0;
  Sent sent_;
};

}  // namespace

Sent send_when_ready(Problem const& problem, std::vector<TaskId> const& serial, SendRules const& rules) {
  return Sender(problem, serial, rules).run();
}

}  // namespace weft
