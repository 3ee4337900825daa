#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/cases.hpp"

namespace weft::perf {

enum class MemoryKind { symmetric, private_memory };

/// nccl-tests' command line, and what Weft adds to it.
struct Options {
  std::size_t min_bytes = 32 << 20;
  std::size_t max_bytes = 32 << 20;
  std::size_t step_bytes = 1 << 20;
  std::size_t step_factor = 1;  ///< 1: steps of step_bytes
  int iterations = 20;
  int warmup = 5;
  int aggregate = 1;
  int root = 0;
  bool check = true;
  std::vector<DataType> dtypes{DataType::f32};
  std::vector<ReduceOp> ops{ReduceOp::sum};

  int ranks = 1;
  MemoryKind memory = MemoryKind::symmetric;
  bool in_place = true;
  bool vs_mpi = false;
  bool cost = false;
  int rounds = 5;
  std::string json;   ///< file to append JSON lines to; empty: none
  std::string label;  ///< goes into every JSON line
  std::optional<EmulatedLink> link;

  /// The message sizes asked for, in bytes, ascending.
  [[nodiscard]] std::vector<std::size_t> sizes() const;
};

/// What parsing decided: run, or leave with an exit code (0 after --help, 2 after a bad argument; the reason has been
/// printed).
struct ParsedOptions {
  Options options;
  std::optional<int> exit_code;
};

[[nodiscard]] ParsedOptions parse_options(Case const& what, int argc, char const* const* argv);

/// nccl-tests' name of a data type: "float", "half", "int8", …
[[nodiscard]] std::string nccl_name(DataType dtype);

}  // namespace weft::perf
