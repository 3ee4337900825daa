#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/cases/contributions.hpp"
#include "collectives/cases/layout.hpp"
#include "collectives/p2p/algorithms.hpp"
#include "transport/sim/simulation.hpp"

namespace weft::test {

/// One rank's buffers for a case, with guards around them, and the call that uses them.
class SimulatedRank {
 public:
  SimulatedRank(Case const& one, Contributions const& contributions, int rank);

  [[nodiscard]] Call const& call() const noexcept { return call_; }
  /// Compares what the call left with what has to be there; `bits`: to the bit. @throws std::runtime_error
  void check(bool bits) const;
  /// What the call left in recv's pieces, one after the other.
  [[nodiscard]] std::vector<std::byte> result() const;

 private:
  struct Region {
    std::vector<std::byte> memory;
    std::vector<std::byte> before;
    std::byte* data = nullptr;
  };

  [[nodiscard]] Region make_region(std::size_t elements, int salt) const;
  void check_rest(char const* name, Region const& region) const;
  [[noreturn]] void fail(std::string const& what) const;

  Case const& one_;
  Contributions const& contributions_;
  int rank_;
  Layout layout_;
  Region send_;
  Region recv_;  // empty in place
  Call call_;
};

/// What the seed stands for: run `number` of those with `seed`. Ranks, algorithms and counts take turns, the rest is by
/// chance: types, operators, roots, parts, in place, the network, delays, the order of what happens.
struct SimulatedRun {
  SimulatedRun(std::uint64_t seed, std::uint64_t number);

  p2p::Algorithm const* algorithm = nullptr;
  Case one;
  sim::Topology topology;
  sim::Options options;
  p2p::Tuning tuning;

  [[nodiscard]] std::string describe() const;
  /// Runs it and checks all ranks. @throws std::runtime_error
  [[nodiscard]] sim::Outcome run() const;
};

[[nodiscard]] Kind kind_of(Operation operation);

}  // namespace weft::test
