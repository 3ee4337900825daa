#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/cost_model.hpp"
#include "weft/op_graph.hpp"

namespace weft {

/// An operator, or collectives that are sent as one, and when it runs.
struct Launch {
  std::vector<OpId> ops{};
  Resource resource = Resource::compute;
  double start_s = 0;
  double end_s = 0;
  std::int64_t live_bytes = 0;  ///< when it has started, resident ones included
};

/// Seconds that no schedule of the graph on the cluster can beat, however it merges collectives
/// (docs/plan-file.md has the formulas).
struct LowerBound {
  double critical_path_s = 0;
  std::array<double, kResources> resource_s{};  ///< by Resource
  double contention_s = 0;                      ///< with computing slowed while collectives run; 0 without contention
  double launches_s = 0;  ///< with launches that are small where computing waits for them, and so many
  /// Within the capacity: what is sent while less is computed than could be cannot all be sent earlier or later.
  double memory_s = 0;
  /// The highest of those that hold whatever memory is taken.
  [[nodiscard]] double best_s() const;
  /// That, or memory_s where it is higher.
  [[nodiscard]] double within_memory_s() const;
};

struct Schedule {
  std::string policy{};
  std::vector<Launch> launches{};  ///< by rising start
  double makespan_s = 0;
  LowerBound bound{};
  std::int64_t peak_bytes = 0;      ///< live at one time, resident ones included
  std::int64_t resident_bytes = 0;  ///< kept, and there from the beginning
  std::int64_t capacity = 0;        ///< that it was planned for
  double contention = 0;
  std::array<double, kResources> busy_s{};  ///< by Resource
  double exposed_s = 0;                     ///< collectives run and nothing is computed
  double planning_s = 0;
  /// No schedule of the graph within the capacity is shorter, for certain. Said of SchedulePolicy::weft alone.
  bool shortest = false;
};

/// How a step is scheduled. Every one keeps within the capacity.
enum class SchedulePolicy : std::uint8_t {
  /// Bucket sizes, memory for them and urgencies searched together. Never longer than any below with the same options,
  /// whatever the time limit; beyond 100,000 operators, than those there was time for. Of up to 12 operators without
  /// contention the shortest of all (Schedule::shortest), but where collectives could be merged in thousands of ways.
  weft,
  blocking,   ///< one task at a time, in the order of least memory that is known
  asap,       ///< everything as soon as it can, what is needed first in front
  alap,       ///< collectives no earlier than their transfer time before they are needed
  prefetch1,  ///< a gather no earlier than the use of the one before it
  prefetch2,  ///< ... of the one two before it
  xla,        ///< rules like those of XLA's latency-hiding scheduler, after combiners of 30 MiB
  inductor,   ///< collectives moved forward as far as the peak of the order stays, as Inductor's passes are described
  random,     ///< the best of several orders by chance
  settings,   ///< ScheduleOptions::settings
};
inline constexpr int kSchedulePolicies = 9;  ///< all but settings
std::string_view to_string(SchedulePolicy policy) noexcept;

/// What trainers that cannot run a plan can be told.
struct ScheduleSettings {
  std::int64_t gather_bytes = 0;     ///< all_gathers and broadcasts are sent together up to so many; 0: one by one
  std::int64_t reduction_bytes = 0;  ///< likewise all other collectives
  int prefetch_depth = 0;  ///< collectives of a kind that start before the first of them is used; 0: as memory allows
  friend bool operator==(ScheduleSettings const&, ScheduleSettings const&) = default;
};

struct ScheduleProgress {
  std::chrono::duration<double> elapsed;
  double makespan_s;  ///< of the best plan so far
  double bound_s;
};

struct ScheduleOptions {
  SchedulePolicy policy = SchedulePolicy::weft;
  /// Bytes that may be live at any time, resident ones included; none: as many as the order of least memory that is
  /// known takes.
  std::optional<std::int64_t> capacity{};
  /// Computing takes 1 + contention times as long while a collective runs.
  double contention = 0;
  /// Past it the search takes the best plan so far; which one that is then depends on the machine's speed. Before, it
  /// depends on the arguments alone. Every other policy is tried even so, up to 100,000 operators.
  std::chrono::milliseconds time_limit{60'000};
  /// Asked between plans, by the caller's thread: true ends the search as time_limit does.
  std::function<bool()> stop{};
  std::uint64_t seed = 1;       ///< of SchedulePolicy::random
  ScheduleSettings settings{};  ///< of SchedulePolicy::settings
  std::function<void(ScheduleProgress const&)>
      progress{};  ///< called after each plan that was tried, by the caller's thread
};

/// When every operator of a step runs on one rank, and which collectives are sent together. Every resource does one
/// thing at a time, all resources work at the same time, and live bytes never exceed the capacity. Pure: all ranks that
/// pass the same arguments get the same plan.
/// @throws Error{invalid_argument} as check_graph(); for operators that take more than 1e18 s in all, a capacity that
/// is negative, a contention that is negative or not finite, settings that are negative. Error{out_of_memory} where no
/// order was found that fits the capacity, saying how many bytes the best one takes, and what none can take less than.
[[nodiscard]] Schedule plan_schedule(OpGraph const& graph, CostModel const& model, ScheduleOptions const& options = {});

/// What operators take beside what the cost model says.
struct Disturbance {
  double compute = 1;        ///< times as long
  double communication = 1;  ///< times as long
  /// Each operator besides by a factor from [1 - noise, 1 + noise] by chance, the same one in all plans of the graph;
  /// merged collectives by that of the first of them.
  double noise = 0;
  std::uint64_t seed = 1;  ///< of that
};

/// Seconds that a step takes which starts its operators in the order of `schedule`, each as soon as what it waits for
/// has ended, its resource is free and the capacity has room for what it makes, while operators take other times than
/// planned. Without disturbance and contention no longer than schedule.makespan_s.
/// @throws Error{invalid_argument} where the schedule is not one of the graph's, or a factor is negative or not finite,
/// or noise above 1.
[[nodiscard]] double replay_schedule(OpGraph const& graph, CostModel const& model, Schedule const& schedule,
                                     Disturbance const& disturbance = {});

/// The least bytes that the operators were quickly found to take one after another, resident ones included: what any
/// capacity from there on is enough for. plan_schedule() looks further where it is given less.
[[nodiscard]] std::int64_t serial_peak_bytes(OpGraph const& graph, CostModel const& model);

}  // namespace weft
