#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

namespace weft::test {

/// Which random cases a run consists of.
///
///   WEFT_TEST_SEED=s     the run to repeat; every run tells its own
///   WEFT_TEST_CASES=n    how many
///   WEFT_TEST_CASE=i     only this one of them
struct RandomRun {
  std::uint64_t seed;
  std::uint64_t cases;
  std::optional<std::uint64_t> only;

  explicit RandomRun(std::uint64_t usual_cases)
      : seed(from_environment("WEFT_TEST_SEED").value_or(std::random_device{}())),
        cases(from_environment("WEFT_TEST_CASES").value_or(usual_cases)),
        only(from_environment("WEFT_TEST_CASE")) {}

 private:
  static std::optional<std::uint64_t> from_environment(char const* name) {
    char const* const value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::uint64_t>(std::stoull(value));
  }
};

}  // namespace weft::test
