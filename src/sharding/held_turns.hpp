#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sharding/unit_layout.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Which units had a backward that sent nothing, under no_sync(): no call's tag tells other ranks, so they are asked
/// when the step ends. In a step: note(), compare(), end_step(). Not thread-safe.
class HeldTurns {
 public:
  void note(std::size_t unit) { units_.push_back(unit); }
  /// Collective, asynchronous: with the ranks of `communicator`, which outlives this, as does what runs on the stream.
  void compare(Communicator& communicator, Stream const& stream);
  /// @throws Error{mismatch} on every rank where they differ, naming the first two units that do.
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
