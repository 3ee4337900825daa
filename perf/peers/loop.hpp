#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/board.hpp"
#include "common/cases.hpp"
#include "common/rounds.hpp"

namespace weft::perf {

/// What one launch of a peer measures: an operation over message sizes, with f32, sum, out of place, root 0, and data
/// that is written before and read after each call.
struct LoopJob {
  std::string op = "all_reduce";   ///< a Case's name
  std::vector<std::size_t> sizes;  ///< bytes, ascending
  int iterations = 20;
  int warmup = 5;
  int rounds = 1;
  bool check = true;  ///< also verify each size's result
};

/// The result for one size.
struct LoopResult {
  std::size_t bytes = 0;
  Figures figures;
  Canary canary;        ///< the worst of the rounds that count
  Canary least_canary;  ///< the best of them
  double wrong = 0;     ///< wrong elements, on all ranks together
};

/// Makes the peer's call on given operands.
using MakeCall = std::function<std::function<void()>(Op, Operands const&, Place)>;

/// Collective: times the peer exactly as the nccl-tests-style programs time Weft. @throws Error{invalid_argument}
[[nodiscard]] std::vector<LoopResult> run_loop(Meeting const& meeting, LoopJob const& job, MakeCall const& make_call);

/// The results as JSON lines with the library's name: {"library": …, "op": …, "bytes": …, "time_us": …, …}.
[[nodiscard]] std::string json_lines(std::string const& library, std::string const& version, LoopJob const& job,
                                     int ranks, std::vector<LoopResult> const& results);

}  // namespace weft::perf
