// WEFT_EXPLAIN: one line for each new decision, from rank 0 alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

CommunicatorOptions explaining() {
  CommunicatorOptions options;
  options.config = Config{};
  options.config->explain = true;
  return options;
}

std::vector<std::string> explanations(std::string const& output) {
  std::vector<std::string> lines;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("weft: [explain] ")) lines.push_back(line);
  }
  return lines;
}

bool any_has(std::vector<std::string> const& lines, std::string const& words) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](auto const& line) { return line.find(words) != std::string::npos; });
}

TEST(Explain, OneLineForEachDecisionOfRankZero) {
  auto const exits = run_forked_ranks(
      2,
      [](Communicator& world) {
        auto buffer = world.allocate(1 << 21, DataType::f32);
        std::vector<float> own(1 << 21);
        for (int i = 0; i < 3; ++i) {
          world.all_reduce(buffer.view().slice(0, 2), buffer.view().slice(0, 2), ReduceOp::sum);
          world.all_reduce(buffer.view().slice(0, 3), buffer.view().slice(0, 3), ReduceOp::max);
          world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
          world.all_reduce(std::span<float const>(own), std::span(own), ReduceOp::sum);
          world.broadcast(buffer.view(), 1);
        }
        return 0;
      },
      explaining());
  expect_all_succeeded(exits);
  auto const lines = explanations(exits[0].output);
  EXPECT_EQ(4U, lines.size()) << exits[0].output;
  EXPECT_TRUE(any_has(lines, "shm, 2 ranks: all_reduce, any memory: inline; up to 56 B")) << exits[0].output;
  EXPECT_TRUE(any_has(lines, "all_reduce, symmetric memory, in place: direct")) << exits[0].output;
  EXPECT_TRUE(any_has(lines, "all_reduce, private memory: ")) << exits[0].output;
  EXPECT_TRUE(any_has(lines, "broadcast, symmetric memory: direct; over ")) << exits[0].output;
  EXPECT_TRUE(explanations(exits[1].output).empty()) << exits[1].output;
}

TEST(Explain, SaysWhatBecomesOfMergedCalls) {
  auto const exits = run_forked_ranks(
      2,
      [](Communicator& world) {
        std::vector<float> own(3000);
        Group group(world);
        for (std::size_t i = 0; i < 3; ++i) {
          auto const part = std::span(own).subspan(i * 1000, 1000);
          world.all_reduce(std::span<float const>(part), part, ReduceOp::sum);
        }
        group.end();
        return 0;
      },
      explaining());
  expect_all_succeeded(exits);
  auto const lines = explanations(exits[0].output);
  EXPECT_TRUE(any_has(lines, "all_reduce, any memory: merged, ")) << exits[0].output;
  EXPECT_TRUE(any_has(lines, "; 3 calls of 11.78 KiB in all, ")) << exits[0].output;
}

TEST(Explain, SilentUnlessAskedFor) {
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    std::vector<float> own(1000);
    world.all_reduce(std::span<float const>(own), std::span(own), ReduceOp::sum);
    return 0;
  });
  expect_all_succeeded(exits);
  EXPECT_TRUE(explanations(exits[0].output).empty()) << exits[0].output;
}

}  // namespace
}  // namespace weft::test
