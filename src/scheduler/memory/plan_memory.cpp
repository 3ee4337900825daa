#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "scheduler/memory/check_buffers.hpp"
#include "scheduler/memory/first_fit.hpp"
#include "scheduler/memory/placement_order.hpp"
#include "scheduler/memory/search_race.hpp"
#include "weft/memory_plan.hpp"

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;
using Outcome = CanonicalSearch::Outcome;

constexpr std::array<PlacementKeys, 4> kFirstFitOrders{"TWA", "AWT", "WTA", "SWT"};
/// The budget of a search's first try (tens of milliseconds), and the factor from one try to the next.
constexpr std::int64_t kFirstBudget = std::int64_t{1} << 24;
constexpr std::int64_t kBudgetGrowth = 4;

/// Searches for one plan: begins with the first that is easily found and goes on towards the best.
class Planner {
 public:
  Planner(std::span<PlannedBuffer const> buffers, MemoryPlanOptions const& options)
      : sections_(make_sections(buffers)),
        options_(options),
        threads_(options.threads > 0 ? options.threads
                                     : static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U))),
        race_(sections_, threads_) {
    plan_.live_bytes = sections_.live_bytes;
    plan_.least_bytes = round_up(sections_.live_bytes);
  }

  MemoryPlan run() {
    for (PlacementKeys const keys : kFirstFitOrders) {
      take(first_fit(sections_, placement_order(sections_, keys)));
      if (is_done()) break;
    }
    for (std::int64_t budget = kFirstBudget; may_find_more_ && !is_done(); budget *= kBudgetGrowth) {
      may_find_more_ = false;
      if (options_.capacity) {
        try_within(round_down(*options_.capacity), budget);
      } else {
        narrow(budget);
      }
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::int64_t round_up(std::int64_t bytes) const { return align_up(bytes, sections_.quantum); }
  [[nodiscard]] std::int64_t round_down(std::int64_t bytes) const { return bytes - bytes % sections_.quantum; }

  void take(std::vector<std::int64_t> offsets) {
    std::int64_t const bytes = bytes_of(sections_, offsets);
    if (!plan_.offsets.empty() && bytes >= plan_.bytes) return;
    plan_.offsets = std::move(offsets);
    plan_.bytes = bytes;
  }

  [[nodiscard]] bool is_done() const {
    if (plan_.bytes <= plan_.least_bytes || is_over()) return true;
    return options_.capacity && (plan_.bytes <= *options_.capacity || plan_.least_bytes > *options_.capacity);
  }

  [[nodiscard]] bool is_over() const { return Clock::now() >= deadline_ || (options_.stop && options_.stop()); }

  /// Tries the smallest size that is possible first, then sizes halfway between that and the best so far.
  void narrow(std::int64_t budget) {
    std::int64_t low = plan_.least_bytes;
    for (std::int64_t target = low; low < plan_.bytes && !is_done();
         target = low + round_down((plan_.bytes - low) / 2)) {
      if (try_within(target, budget) != Outcome::found) low = target + sections_.quantum;
    }
  }

  Outcome try_within(std::int64_t capacity, std::int64_t budget) {
    auto result = race_.run(capacity, budget, [this] {
      report();
      return is_over();
    });
    may_find_more_ = may_find_more_ || result.outcome == Outcome::undecided;
    if (result.outcome == Outcome::found) take(std::move(result.offsets));
    if (result.outcome == Outcome::impossible) {
      plan_.least_bytes = std::max(plan_.least_bytes, capacity + sections_.quantum);
    }
    return result.outcome;
  }

  // The plan changes only between searches, so the searches' threads may read it.
  void report() {
    if (!options_.progress) return;
    std::scoped_lock const lock(reporting_);
    auto const now = Clock::now();
    if (now < next_report_) return;
    next_report_ = now + std::chrono::seconds(1);
    options_.progress(
        {std::chrono::duration_cast<std::chrono::milliseconds>(now - start_), plan_.bytes, plan_.least_bytes});
  }

  Sections sections_;
  MemoryPlanOptions const& options_;
  int threads_;
  SearchRace race_;
  MemoryPlan plan_;
  bool may_find_more_ = true;  ///< with a larger budget
  Clock::time_point start_ = Clock::now();
  Clock::time_point deadline_ = start_ + options_.time_limit;
  Clock::time_point next_report_ = start_ + std::chrono::seconds(1);
  std::mutex reporting_;
};

}  // namespace

MemoryPlan plan_memory(std::span<PlannedBuffer const> buffers, MemoryPlanOptions const& options) {
  check_buffers(buffers, options);
  return Planner(buffers, options).run();
}

}  // namespace weft
