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

/// What a task's start waits for besides its inputs and memory.
enum class StartRule : std::uint8_t {
  early,     ///< as PlanChoice::depth and PlanChoice::window say
  late,      ///< late_gates()
  raised,    ///< raised_gates()
  blocking,  ///< one task at a time
  random,    ///< nothing more: tasks get random urgencies
};

/// One way to plan a step: how collectives are merged, and when tasks may start.
struct PlanChoice {
  StartRule rule = StartRule::early;
  double gather_bytes = 0;  ///< MergeRules
  double reduce_bytes = 0;
  double share = 0.3;
  double taper = 1;
  int depth = 0;                    ///< of prefetch_gates(); 0: gathers wait for memory only
  int window = 1000;                ///< RunRules
  double rush = 0;                  ///< urgency_with_rush()
  std::uint64_t seed = 0;           ///< of StartRule::random
  std::optional<SendRules> send{};  ///< if set, collectives are merged by send_when_ready() with these rules instead
  std::shared_ptr<Merged const> merged{};  ///< if set, they are merged like this instead
};

/// A planned step: the problem with its launches merged, and how that runs.
struct Plan {
  std::unique_ptr<Problem> problem{};
  Run run{};
};

/// Plans one step in the way that a PlanChoice says; PlanSearch decides which choices are tried. Thread-safe once it is
/// made.
class PlanMaker {
 public:
  /// @throws Error{out_of_memory} where no order is known that fits the capacity.
  PlanMaker(OpGraph const& graph, CostModel const& model, std::optional<std::int64_t> capacity, double contention);

  [[nodiscard]] Problem const& unmerged() const { return unmerged_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] double contention() const { return contention_; }
  [[nodiscard]] LowerBound const& bound() const { return bound_; }

  /// A choice worked out, but not run yet: its launches, the problem with these merged, and a serial order of that.
  struct Draft {
    PlanChoice choice{};
    std::vector<std::vector<OpId>> launches{};
    std::unique_ptr<Problem> problem{};
    std::vector<TaskId> serial{};
  };
  /// Works a choice out. Draft::problem is null where PlanChoice::merged cannot be planned because of a cycle or the
  /// memory. Merging looks at each launch's memory by itself; where all of them together need too much, less is merged
  /// than was chosen.
  [[nodiscard]] Draft draft(PlanChoice choice) const;
  /// Runs a draft in simulated time. Run::complete is false where it is certain not to end before `give_up_s`.
  [[nodiscard]] Plan run(Draft draft, double give_up_s = std::numeric_limits<double>::infinity()) const;
  /// The plan in its loosened_order(), if that takes no longer than the plan (rounding aside) and no longer than
  /// `most_s`; else the plan itself.
  [[nodiscard]] Plan loosened(Plan plan, double most_s) const;

 private:
  /// Takes the serial order of memory_order(), which uses less memory but takes longer to find.
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
