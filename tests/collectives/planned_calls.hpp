#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "collectives/reference.hpp"
#include "harness/sanitizers.hpp"

namespace weft::test {

/// How many of them a test makes.
inline constexpr int kPlans = unless_sanitized(40, 8);

enum class PlannedKind {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  scatter,
  all_to_all,
  scan,
  exscan,
  barrier,
};
inline constexpr std::size_t kPlannedKinds = 11;

struct Shapes {
  std::size_t send;
  std::size_t recv;
};

/// One call with buffers of its own: [send | recv] in `arena`.
struct Planned {
  PlannedKind kind = PlannedKind::barrier;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::size_t count = 0;
  bool in_place = false;

  [[nodiscard]] Shapes shapes(int ranks) const {
    auto const n = static_cast<std::size_t>(ranks) * count;
    switch (kind) {
      case PlannedKind::reduce_scatter:
      case PlannedKind::scatter: return {n, count};
      case PlannedKind::all_gather:
      case PlannedKind::gather: return {count, n};
      case PlannedKind::all_to_all: return {n, n};
      case PlannedKind::barrier: return {0, 0};
      default: return {count, count};
    }
  }
};

/// Calls to be made together, and one by one.
class Plan {
 public:
  explicit Plan(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(engine_); }
  bool coin() { return below(2) == 1; }

  /// Calls of few kinds, so that many merge.
  std::vector<Planned> calls(int ranks);

 private:
  std::mt19937_64 engine_;
};

/// Room for the buffers of `calls`.
[[nodiscard]] std::size_t arena_bytes(std::vector<Planned> const& calls, int ranks);

/// Makes the calls with buffers in `arena`, filled alike for one seed.
std::vector<Work> make_calls(Communicator& world, std::vector<Planned> const& calls, std::byte* arena,
                             std::uint64_t seed, CollectiveOptions const& how);

}  // namespace weft::test
