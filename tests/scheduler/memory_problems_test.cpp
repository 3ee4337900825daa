// minimalloc's challenging problems, each of which fits in 1,048,576 bytes; how fast is perf-check's business.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "scheduler/planned_buffers.hpp"
#include "weft_memory/problem_csv.hpp"

namespace weft::test {
namespace {

std::filesystem::path problems() {
  char const* const data = std::getenv("WEFT_TEST_DATA");
  auto const folder =
      data != nullptr ? std::filesystem::path(data) : std::filesystem::path(WEFT_SOURCE_DIR) / "../shared/data";
  return folder / "minimalloc";
}

class MemoryProblems : public testing::TestWithParam<char> {};

TEST_P(MemoryProblems, Fit) {
  auto const path = problems() / (std::string(1, GetParam()) + ".1048576.csv");
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << path << " is absent; WEFT_TEST_DATA says where test data is";
  auto const buffers = memory_tool::read_problem(file, path).buffers;
  ASSERT_GT(buffers.size(), 100U);
  MemoryPlan const plan = plan_memory(buffers, {.capacity = 1'048'576, .time_limit = std::chrono::minutes(5)});
  expect_legal(buffers, plan);
  EXPECT_LE(plan.bytes, 1'048'576);
}

INSTANTIATE_TEST_SUITE_P(Challenging, MemoryProblems, testing::Range('A', 'G'),
                         [](auto const& letter) { return std::string(1, letter.param); });

}  // namespace
}  // namespace weft::test
