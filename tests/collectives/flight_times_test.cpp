// When calls began and ended, as dumps tell it.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "harness/ranks.hpp"
#include "harness/tally.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

constexpr auto kLong = std::chrono::milliseconds(40);  // several ticks of the coarsest clock, which may miss one

/// How long the last call of this process took, in milliseconds.
double last_call_ms() {
  double took = -1;
  for (auto const& file : dump_flight_recorders()) {
    auto const dump = nlohmann::json::parse(std::ifstream(file));
    std::filesystem::remove(file);
    auto const& last = dump["calls"].back();
    took = (last["finished_ns"].get<double>() - last["started_ns"].get<double>()) / 1e6;
  }
  return took;
}

void expect_lasting(int rank_that_knows, std::function<void(Communicator&)> const& call, double least_ms = 20) {
  expect_all_succeeded(run_forked_bootstraps(2, [&](std::shared_ptr<Bootstrap> bootstrap) {
    CommunicatorOptions options;
    options.config = Config{};
    options.config->flight_directory = ::testing::TempDir();
    auto world = Communicator::create(std::move(bootstrap), options);
    call(world);
    if (world.rank() == rank_that_knows) {
      EXPECT_GE(last_call_ms(), least_ms);
    }
    world.barrier();
    return 0;
  }));
}

/// Whether the last call of this process has begun and not ended.
bool is_in_a_call() {
  bool found = false;
  for (auto const& file : dump_flight_recorders()) {
    auto const dump = nlohmann::json::parse(std::ifstream(file));
    std::filesystem::remove(file);
    found = found || (!dump["calls"].empty() && dump["calls"].back()["state"] == "started");
  }
  return found;
}

TEST(FlightTimes, ASmallCallThatWaitedForALateRankTookAsLong) {
  Tally waits;
  expect_lasting(0, [&](Communicator& world) {
    std::thread watch;
    if (world.rank() == 0) {
      watch = std::thread([&] {
        while (!is_in_a_call()) std::this_thread::yield();
        waits.add();
      });
    } else {
      waits.await(1);
      std::this_thread::sleep_for(kLong);
    }
    std::vector<float> const mine(1);
    std::vector<float> all(2);
    world.all_gather(std::span(mine), std::span(all));
    if (watch.joinable()) watch.join();
  });
}

TEST(FlightTimes, ASmallCallWhoseFunctionTakesLongTookAsLong) {
  auto const slowly = [](void*, void const*, std::size_t, void*) { std::this_thread::sleep_for(kLong); };
  expect_lasting(0, [&](Communicator& world) {
    std::vector<float> values(1);
    world.all_reduce(std::span(values), std::span(values), Reduction::user(slowly));
  });
}

// Calls with unequal parts do not tell how many elements there are.
TEST(FlightTimes, AGatherOfUnequalPartsThatTakesLongTookAsLong) {
  auto const gather = [](Communicator& world) {
    constexpr std::size_t kMost = std::size_t{1} << 28U;
    std::vector<std::size_t> const counts{kMost, 1};
    std::vector<std::uint8_t> mine(counts[static_cast<std::size_t>(world.rank())]);
    std::vector<std::uint8_t> all(world.rank() == 0 ? kMost + 1 : 0);
    if (world.rank() == 0) std::this_thread::sleep_for(kLong);  // waits for nobody
    world.gather(std::span(mine), std::span(all), Parts{.counts = counts}, 0);
  };
  expect_lasting(0, gather, 5);  // memory may be fast
}

}  // namespace
}  // namespace weft::test
