#include "scheduler/plan/run_tasks.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/memory_outlook.hpp"

namespace weft {

namespace {

/// Tasks that do not fit are passed over for less urgent ones, but no more than this many at a time.
constexpr int kMostTries = 8;

class TaskRunner {
 public:
  TaskRunner(Problem const& problem, RunRules const& rules)
      : problem_(problem),
        rules_(rules),
        memory_(problem, rules.serial),
        waits_for_(problem.tasks().size()),
        started_(problem.tasks().size(), false) {
    run_.tasks.resize(problem.tasks().size());
    for (TaskId const task : rules.serial) {
      waits_for_[at(task)] = problem.before(task).size();
      if (waits_for_[at(task)] == 0) make_ready(task);
      left_s_[slot_of(problem.task(task).resource)] += seconds(task);
    }
  }

  Run run() {
    start_what_can();
    while (run_.started.size() < problem_.tasks().size() || running_ > 0) {
      if (running_ > 0) step();
      if (now_ + *std::max_element(left_s_.begin(), left_s_.end()) >= rules_.give_up_s) {
        run_.complete = false;
        break;
      }
      start_what_can();
      if (running_ == 0) start_next_of_serial();
    }
    run_.makespan_s = now_;
    run_.peak_bytes = memory_.peak();
    return std::move(run_);
  }

 private:
  using Ready = std::set<std::pair<double, TaskId>>;

  struct Slot {
    TaskId task = kNone;
    double left_s = 0;  ///< at full speed
  };

  static std::size_t slot_of(Resource resource) { return static_cast<std::size_t>(resource); }

  [[nodiscard]] double seconds(TaskId task) const {
    return rules_.seconds.empty() ? problem_.task(task).seconds : rules_.seconds[at(task)];
  }

  [[nodiscard]] double urgency(TaskId task) const {
    return rules_.blocking ? memory_.position(task) : rules_.urgency[at(task)];
  }

  void make_ready(TaskId task) { ready_[slot_of(problem_.task(task).resource)].emplace(urgency(task), task); }

  void start_what_can() {
    bool started = true;
    while (started) {
      started = false;
      // Links first, as their results are the more likely to be waited for.
      for (auto const resource : {Resource::between_hosts, Resource::within_host, Resource::copy, Resource::compute}) {
        while (slots_[slot_of(resource)].task == kNone && start_one(slot_of(resource))) started = true;
      }
    }
  }

  bool start_one(std::size_t slot) {
    if (rules_.blocking && running_ > 0) return false;
    int tries = 0;
    for (auto candidate = ready_[slot].begin(); candidate != ready_[slot].end() && tries < kMostTries;
         ++candidate, ++tries) {
      TaskId const task = candidate->second;
      if (!may_start(task)) continue;
      ready_[slot].erase(candidate);
      start(slot, task);
      return true;
    }
    return false;
  }

  /// Used where everything that was tried has to wait. This task never has to: nothing else runs.
  void start_next_of_serial() {
    while (first_open_ < rules_.serial.size() && started_[at(rules_.serial[first_open_])]) ++first_open_;
    if (first_open_ == rules_.serial.size()) return;
    TaskId const task = rules_.serial[first_open_];
    std::size_t const slot = slot_of(problem_.task(task).resource);
    ready_[slot].erase({urgency(task), task});
    start(slot, task);
  }

  bool within_window(TaskId task) {
    auto const& serial = rules_.serial;
    auto const computed = [&](TaskId each) {
      return started_[at(each)] || problem_.task(each).resource != Resource::compute;
    };
    while (first_uncomputed_ < serial.size() && computed(serial[first_uncomputed_])) ++first_uncomputed_;
    return memory_.position(task) - static_cast<std::int64_t>(first_uncomputed_) <= rules_.window;
  }

  bool may_start(TaskId task) {
    if (rules_.blocking || rules_.in_order) {
      bool const next = memory_.position(task) == static_cast<std::int32_t>(run_.started.size());
      return next && memory_.live() + problem_.made_by(task) <= rules_.capacity;
    }
    if (!rules_.gates.empty() && rules_.gates[at(task)] != kNone && !started_[at(rules_.gates[at(task)])]) return false;
    if (problem_.task(task).resource == Resource::compute && !within_window(task)) return false;
    return memory_.is_safe(task, rules_.capacity);
  }

  void start(std::size_t slot, TaskId task) {
    memory_.start(task);
    run_.started.push_back(task);
    started_[at(task)] = true;
    run_.tasks[at(task)].live_bytes = memory_.live();
    run_.tasks[at(task)].start_s = now_;
    slots_[slot] = {task, seconds(task)};
    if (ends_at_once(slot)) {
      slots_[slot].task = kNone;
      left_s_[slot] = std::max(0.0, left_s_[slot] - seconds(task));
      end(task);
      return;
    }
    ++running_;
  }

  /// Whether what is left takes no time, or so little that adding it to now_ changes nothing. Such a task must not go
  /// on: a task that starts after it at this very moment would seem to share memory with a task whose end_s is its own
  /// start_s.
  [[nodiscard]] bool ends_at_once(std::size_t slot) const { return now_ + slots_[slot].left_s / speed(slot) <= now_; }

  void end(TaskId task) {
    run_.tasks[at(task)].end_s = now_;
    memory_.end(task);
    for (TaskId const later : problem_.after(task)) {
      if (--waits_for_[at(later)] == 0) make_ready(later);
    }
  }

  [[nodiscard]] double speed(std::size_t slot) const {
    bool const sending =
        slots_[slot_of(Resource::between_hosts)].task != kNone || slots_[slot_of(Resource::within_host)].task != kNone;
    return slot == slot_of(Resource::compute) && sending ? 1 / (1 + rules_.contention) : 1;
  }

  /// Goes on to the next end of a task.
  void step() {
    double next = std::numeric_limits<double>::infinity();
    std::array<double, kResources> speeds{};
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].task == kNone) continue;
      speeds[slot] = speed(slot);
      next = std::min(next, slots_[slot].left_s / speeds[slot]);
    }
    now_ += next;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].task == kNone) continue;
      bool const ends = slots_[slot].left_s / speeds[slot] <= next * (1 + 1e-12);
      slots_[slot].left_s = ends ? 0 : slots_[slot].left_s - next * speeds[slot];
      left_s_[slot] = std::max(0.0, left_s_[slot] - next * speeds[slot]);
    }
    while (end_one()) {
    }
  }

  /// One end may let another task end at once, as computing is faster when nothing is sent any more.
  bool end_one() {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      TaskId const task = slots_[slot].task;
      if (task == kNone || !ends_at_once(slot)) continue;
      slots_[slot].task = kNone;
      --running_;
      end(task);
      return true;
    }
    return false;
  }

  Problem const& problem_;
  RunRules const& rules_;
  MemoryOutlook memory_;
  std::vector<std::size_t> waits_for_;
  std::vector<bool> started_;
  std::array<Ready, kResources> ready_;
  std::array<Slot, kResources> slots_;
  std::array<double, kResources> left_s_{};  ///< by resource: seconds of all tasks that have not ended, at full speed
  std::size_t first_open_ = 0;               ///< all tasks before this place of the serial order have started
  std::size_t first_uncomputed_ = 0;
  int running_ = 0;
  double now_ = 0;
  Run run_;
};

}  // namespace

Run run_tasks(Problem const& problem, RunRules const& rules) {
  return TaskRunner(problem, rules).run();
}

}  // namespace weft
