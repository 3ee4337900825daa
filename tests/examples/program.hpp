#pragma once

#include <string>

#include "harness/sanitizers.hpp"
#include "temporary_folder.hpp"

namespace weft::test {

/// Seconds for a run that takes one or two where nothing else runs.
inline constexpr int kAgainstHanging = unless_sanitized(100, 400);

/// How a run of train_gpt ended.
struct ProgramResult {
  int code = -1;  ///< 124 when the time limit ended it
  std::string out;
  std::string error;
};

/// Runs train_gpt through the shell with a time limit; without mpirun's variables of an enclosing run.
[[nodiscard]] ProgramResult run_train_gpt(std::string const& arguments, int limit_seconds = kAgainstHanging);

/// Options for several buckets in a small model; none where `arguments` ask for a strategy that has no buckets.
[[nodiscard]] std::string small_buckets(std::string const& arguments);

[[nodiscard]] std::string read_file(std::string const& path);

}  // namespace weft::test
