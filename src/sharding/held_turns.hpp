#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sharding/unit_layout.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Records which units had a backward under no_sync(). Such a backward sends nothing, so no call's tag tells other
/// ranks about it; instead ranks compare their records when the step ends. In a step: note(), compare(), end_step().
/// Not thread-safe.
class HeldTurns {
 public:
  void note(std::size_t unit) { units_.push_back(unit); }
  /// Collective, asynchronous: compares with the ranks of `communicator`, which must outlive this. This must outlive
  /// what it enqueues on `stream`.
  void compare(Communicator& communicator, Stream const& stream);
  /// Waits for the comparisons. @throws Error{mismatch} on every rank where records differ, naming the first two units
  /// that do.
  void end_step(UnitLayout const& layout);

 private:
  struct Comparison {
    Communicator* communicator;
    std::uint64_t mine;
    std::vector<std::uint64_t> digests;  ///< by rank
    Work work;
  };

  [[noreturn]] void name_difference(Communicator& communicator, UnitLayout const& layout) const;

  std::vector<std::uint64_t> units_;
  std::deque<Comparison> comparisons_;
};

}  // namespace weft
