#include "weft_doctor/lateness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "weft_doctor/diagnosis.hpp"

namespace weft::doctor {
namespace {

constexpr std::int64_t kMs = 1'000'000;

/// Of 3 ranks that make a step of 100 ms each: its calls take 1 ms once all are there. `late[r]`: ms after the step's
/// begin at which rank r comes.
std::vector<Dump> job(std::vector<std::int64_t> const& late, int steps, std::string const& call) {
  std::vector<Dump> dumps;
  auto const last = *std::max_element(late.begin(), late.end());
  for (std::size_t rank = 0; rank < late.size(); ++rank) {
    auto const clock = static_cast<std::int64_t>(rank) * 5000 * kMs;  // hosts' clocks differ by more than all of it
    Dump dump{.file = {},
              .communicator = "c0ffee",
              .rank = static_cast<int>(rank),
              .size = static_cast<int>(late.size()),
              .pid = 100 + static_cast<long>(rank),
              .host = "node" + std::to_string(rank),
              .written_ns = clock + steps * 100 * kMs,
              .calls = {}};
    for (int step = 0; step < steps; ++step) {
      auto const begin = clock + step * 100 * kMs;
      dump.calls.push_back({.sequence = static_cast<std::uint64_t>(step) + 1,
                            .text = call,
                            .started_ns = begin + late[rank] * kMs,
                            .finished_ns = begin + (last + 1) * kMs});
    }
    dumps.push_back(std::move(dump));
  }
  return dumps;
}

std::string sentence_of(std::vector<Dump> const& dumps) {
  return diagnose(dumps).front().sentence;
}

TEST(Lateness, NamesTheRankThatTheOthersWaitFor) {
  EXPECT_EQ(
      sentence_of(job({10, 70, 20}, 11, "all_reduce(9 × f32, sum)")),
      "all ranks finished call 11: nothing is missing; rank 1 comes late: the others waited for it 0.6 s of 1.1 s");
}

TEST(Lateness, SaysNothingOfShortWaitsOneLongOneOrCallsWithARoot) {
  std::string const healthy = "all ranks finished call 11: nothing is missing";
  EXPECT_EQ(sentence_of(job({10, 12, 11}, 11, "all_reduce(9 × f32, sum)")), healthy);
  EXPECT_EQ(sentence_of(job({10, 70, 20}, 11, "broadcast(9 × f32, root 1)")), healthy);
  auto one = job({10, 10, 10}, 11, "barrier()");
  *one[0].calls[0].started_ns -= 60'000 * kMs;  // the others were still starting
  EXPECT_EQ(sentence_of(one), healthy);
}

}  // namespace
}  // namespace weft::doctor
