#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/run_tasks.hpp"
#include "scheduler/plan/send_when_ready.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// What the start of a task waits for beside what it needs and memory.
enum class StartRule : std::uint8_t {
  early,     ///< PlanChoice::depth and window
  late,      ///< late_gates()
  raised,    ///< raised_gates()
  blocking,  ///< one task at a time
  random,    ///< urgencies by chance
};

/// One way to plan a step: how collectives are merged, and when tasks may start.
struct PlanChoice {
  StartRule rule = StartRule::early;
  double gather_bytes = 0;  ///< MergeRules
  double reduce_bytes = 0;
  double share = 0.3;
  double taper = 1;
  int depth = 0;                           ///< of prefetch_gates(); 0: gathers wait for memory only
  int window = 1000;                       ///< RunRules
  double rush = 0;                         ///< urgency_with_rush()
  std::uint64_t seed = 0;                  ///< of StartRule::random
  std::optional<SendRules> send{};         ///< collectives are merged by these rules instead
  std::shared_ptr<Merged const> merged{};  ///< ... or as told
};

/// What was merged, and how that runs.
struct Plan {
  std::unique_ptr<Problem> problem{};
  Run run{};
};

/// Plans one step in given ways. Thread-safe once it is made.
class PlanMaker {
 public:
  /// @throws Error{out_of_memory} where no order is known that fits the capacity.
  PlanMaker(OpGraph const& graph, CostModel const& model, std::optional<std::int64_t> capacity, double contention);

  [[nodiscard]] Problem const& unmerged() const { return unmerged_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] double contention() const { return contention_; }
  [[nodiscard]] LowerBound const& bound() const { return bound_; }

  /// What comes of a choice before it runs.
  struct Draft {
    PlanChoice choice{};
    std::vector<std::vector<OpId>> launches{};
    std::unique_ptr<Problem> problem{};
    std::vector<TaskId> serial{};
  };
  /// Without a problem where PlanChoice::merged cannot be: for a cycle or the memory.
  /// Merging looks at each launch's memory by itself; where that turns out to be too much for all of them, less is
  /// merged than was chosen.
  [[nodiscard]] Draft draft(PlanChoice choice) const;
  /// Run::complete is false where it is certain not to end before `give_up_s`.
  [[nodiscard]] Plan run(Draft draft, double give_up_s = std::numeric_limits<double>::infinity()) const;
  /// The plan in its loosened_order(), where it takes no longer so (but for rounding, and no longer than `most_s`).
  [[nodiscard]] Plan loosened(Plan plan, double most_s) const;

 private:
  /// The serial order that memory_order() finds: it takes longer than the one there is otherwise.
  void find_less_memory();
  [[noreturn]] void refuse_capacity(std::int64_t peak, std::int64_t bound) const;
  [[nodiscard]] Draft send_as_ready(PlanChoice choice) const;
  [[nodiscard]] Draft merge_as_told(PlanChoice choice) const;
  [[nodiscard]] RunRules rules_for(Draft const& draft) const;

  Problem unmerged_;
  std::vector<TaskId> serial_;
  std::int64_t serial_peak_;
  std::int64_t capacity_;
  double contention_;
  LowerBound bound_;
};

}  // namespace weft
