#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/board.hpp"
#include "common/operands.hpp"
#include "common/pattern.hpp"

namespace weft::perf {

/// One of the things compared at one message size: a library's call on its own operands.
struct Side {
  std::string name;
  Operands on;
  std::function<void()> call;
  int calls = 1;  ///< how many collectives one call() makes
};

/// How a side is timed.
struct LoopSettings {
  int iterations = 20;          ///< option -n: the number for 128 KB to 1 MB; scaled for other message sizes
  bool touch = true;            ///< write all input before a call and read all output after it
  bool cost = true;             ///< also time the whole write–call–read loop
  Across across = Across::max;  ///< which rank's time counts
};

/// What one round measured of one side, in seconds per collective.
struct Sample {
  double call_loop = 0;  ///< small messages: write–barrier–call–read; larger ones: the call alone
  double call_base = 0;  ///< small messages: write–barrier–read; larger ones: 0
  double cost_loop = 0;  ///< write–call–read; 0 when not asked for
  double cost_base = 0;  ///< write–read
};

/// What tells a disturbed round from a quiet one.
struct Canary {
  double copy = 0;     ///< seconds for a memcpy of 1 MiB by every rank at once
  double barrier = 0;  ///< seconds for one exchange of flags
  double work = 0;     ///< seconds for additions that fill a core: longer if the core also works for others
};

/// How long canaries should take, in seconds.
struct WantedCanary {
  std::optional<double> barrier{};
  std::optional<double> work{};

  [[nodiscard]] bool is_anything() const noexcept { return barrier.has_value() || work.has_value(); }
};

/// Times one side at one size. Collective: every rank makes the same calls.
class Stopwatch {
 public:
  Stopwatch(Board& board, DataType dtype, LoopSettings settings);

  void warm_up(Side const& side, int iterations);
  [[nodiscard]] Sample measure(Side const& side, std::size_t bytes);
  /// How many calls measure() makes in each of its loops.
  [[nodiscard]] int iterations(std::size_t bytes) const noexcept;
  [[nodiscard]] Canary canary();
  /// Makes canaries until they are as wanted, within a factor of `within`, for up to about `patience` seconds. Returns
  /// how long that took.
  double await(WantedCanary const& wanted, double within, double patience);
  /// Whether ranks take turns on the cores.
  [[nodiscard]] bool crowded() const noexcept { return board_.crowded(); }

  /// Messages up to this size are timed in batches, as a clock read would be a good part of the call.
  static constexpr std::size_t kBatchedBytes = 16 << 10;

 private:
  enum class Body { write_read, write_barrier_read, write_call_read, write_barrier_call_read };
  /// How many iterations a loop has and how often the loop is repeated.
  struct Effort {
    int iterations;
    int batches;
  };
  [[nodiscard]] Effort effort(std::size_t bytes) const noexcept;
  [[nodiscard]] double loop(Side const& side, int iterations, Body body);
  [[nodiscard]] double best_loop(Side const& side, Effort effort, Body body);
  [[nodiscard]] double timed_calls(Side const& side, int iterations);

  Board& board_;
  Pattern pattern_;
  LoopSettings settings_;
  std::uint64_t turn_ = 0;
  Buffer copy_from_;
  Buffer copy_to_;
};

}  // namespace weft::perf
