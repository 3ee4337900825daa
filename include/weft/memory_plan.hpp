#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// [begin, end) in any unit of time that all buffers of a plan share: operators of a program, microseconds.
struct TimeSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Part of a buffer's life in which others may lie where it lies.
struct LifeGap {
  TimeSpan when{};
  /// Of the buffer's bytes, [kept_begin, kept_end) stay its own even then; nothing by default. plan_memory() keeps all
  /// of [0, kept_end) free of others.
  std::int64_t kept_begin = 0;
  std::int64_t kept_end = 0;
};

/// A buffer of which is known, before anything runs, when it is needed.
struct PlannedBuffer {
  std::string name{};  ///< for messages; may be empty
  TimeSpan life{};     ///< empty: it is never needed, and lies at 0
  std::int64_t bytes = 0;
  std::int64_t alignment = 1;   ///< its offset is a multiple of this, in bytes; any number from 1
  std::vector<LifeGap> gaps{};  ///< within life, in any order, apart from one another
};

/// Where every buffer lies in one piece of memory, so that no two that are needed at the same time share a byte.
struct MemoryPlan {
  std::vector<std::int64_t> offsets{};  ///< bytes, one per buffer, in their order
  std::int64_t bytes = 0;               ///< that the plan needs: the highest end of a buffer
  std::int64_t live_bytes = 0;          ///< the most that is needed at one time
  /// No plan of these buffers needs fewer bytes: at least live_bytes, more where that has been shown to be impossible.
  std::int64_t least_bytes = 0;
};

/// What a long search tells from time to time.
struct MemoryPlanProgress {
  std::chrono::milliseconds elapsed;
  std::int64_t bytes;        ///< of the best plan so far
  std::int64_t least_bytes;  ///< as in MemoryPlan
};

struct MemoryPlanOptions {
  /// Bytes there are. The search ends with the first plan that fits, or once it is certain that none does. None: it
  /// goes on until a plan is the best there is.
  std::optional<std::int64_t> capacity{};
  /// After this the best plan so far is returned. Which plan that is then depends on the machine's speed; before, it
  /// depends on the buffers alone, whatever the number of threads.
  std::chrono::milliseconds time_limit{10'000};
  int threads = 0;  ///< 0: one per core
  /// Asked many times a second, from threads of the search, several at once: true ends it as time_limit does.
  std::function<bool()> stop{};
  /// Called about once a second, from a thread of the search; never after plan_memory() has returned.
  std::function<void(MemoryPlanProgress const&)> progress{};
};

/// Offsets for buffers whose lives are known. Buffers are first placed one after another, in several orders, each where
/// it fits lowest; where that is not the best there can be, a search follows over the plans in which no buffer could
/// lie lower (canonical solutions: M. D. Moffitt, "MiniMalloc", ASPLOS 2023, doi:10.1145/3623278.3624752).
///
/// A plan is returned whether or not it fits `capacity`: it fits where plan.bytes is at most that; none can where
/// plan.least_bytes is more; else nothing was found in time. Pure: threads of its own aside, it touches nothing.
/// @throws Error{invalid_argument}, naming the buffer, for a life or a gap that ends before it begins, a gap outside
/// the life or that overlaps another or keeps bytes that the buffer has not, bytes below 0, an alignment below 1, sizes
/// that add up to more than 2^62; for a capacity below 0.
[[nodiscard]] MemoryPlan plan_memory(std::span<PlannedBuffer const> buffers, MemoryPlanOptions const& options = {});

}  // namespace weft
