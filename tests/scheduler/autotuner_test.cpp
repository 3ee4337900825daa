#include "weft/autotuner.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>

#include "harness/ranks.hpp"
#include "weft/data_parallel.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

nanoseconds seconds(double value) {
  return duration_cast<nanoseconds>(std::chrono::duration<double>(value));
}

/// A training whose steps take what the setting says, more or less, differently on each rank.
class PretendedTraining {
 public:
  PretendedTraining(std::vector<double> times, int rank)
      : times_(std::move(times)), random_(static_cast<std::uint64_t>(rank) + 1) {}

  [[nodiscard]] TuningSpace space() {
    TuningSpace space{"pretended", {}};
    for (std::size_t i = 0; i < times_.size(); ++i) {
      space.candidates.push_back({"setting " + std::to_string(i), [this, i] {
                                    set = i;
                                    applied.push_back(i);
                                  }});
    }
    return space;
  }
  [[nodiscard]] nanoseconds step() {
    std::normal_distribution<double> noise(1, 0.03);
    return seconds(times_[set] * noise(random_));
  }

  std::size_t set = 0;
  std::vector<std::size_t> applied;

 private:
  std::vector<double> times_;
  std::mt19937_64 random_;
};

CommunicatorOptions with_cache(std::string const& path) {
  CommunicatorOptions options;
  options.config = Config{};
  if (!path.empty()) options.config->autotune_cache = path;
  return options;
}

class TemporaryCache {
 public:
  TemporaryCache()
      : folder_(std::filesystem::temp_directory_path() /
                ("weft-autotuner-" + std::to_string(::getpid()) + "-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~TemporaryCache() { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return (folder_ / "autotune.json").string(); }

 private:
  std::filesystem::path folder_;
};

TEST(Autotuner, SettlesAlikeOnEveryRankWithinItsShare) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::mutex mutex;
    std::vector<std::vector<std::size_t>> applied;
    ::testing::internal::CaptureStderr();
    run_thread_ranks(
        ranks,
        [&](Communicator& world) {
          PretendedTraining training({1.0, 0.9, 1.1, 0.7, 0.8, 1.3, 0.95}, world.rank());
          Autotuner tuner(world, training.space(), {.training_steps = 400, .most_share = 0.25});
          std::size_t step = 0;
          for (; step < 400 && !tuner.is_settled(); ++step) tuner.end_step(training.step());
          EXPECT_LE(step, 100U);
          ASSERT_TRUE(tuner.is_settled());
          EXPECT_EQ(tuner.outcome()->setting, "setting 3");
          EXPECT_EQ(training.set, 3U);
          EXPECT_NEAR(tuner.outcome()->seconds, 0.7, 0.03);
          EXPECT_NEAR(tuner.outcome()->default_seconds, 1.0, 0.04);
          EXPECT_EQ(tuner.outcome()->candidates, 7U);
          EXPECT_EQ(tuner.outcome()->steps, step);
          EXPECT_FALSE(tuner.outcome()->from_cache);
          std::size_t const changes = training.applied.size();
          for (int i = 0; i < 10; ++i) tuner.end_step(training.step());
          EXPECT_EQ(training.applied.size(), changes);
          std::lock_guard const lock(mutex);
          applied.push_back(training.applied);
        },
        with_cache(""));
    std::string const said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_NE(said.find("[autotune] setting 3: "), std::string::npos) << said;
    EXPECT_NE(said.find("% less than the "), std::string::npos) << said;
    for (auto const& each : applied) EXPECT_EQ(each, applied.front());
  }
}

// One rank of three sees nonsense: it is outvoted.
TEST(Autotuner, TakesMediansOverRanks) {
  run_thread_ranks(
      3,
      [](Communicator& world) {
        std::vector<double> times{1.0, 0.8, 0.9, 1.2};
        if (world.rank() == 2) times = {0.1, 5.0, 5.0, 0.05};
        PretendedTraining training(times, world.rank());
        Autotuner tuner(world, training.space(), {.training_steps = 100, .most_share = 1});
        for (int step = 0; step < 100; ++step) tuner.end_step(training.step());
        ASSERT_TRUE(tuner.is_settled());
        EXPECT_EQ(tuner.outcome()->setting, "setting 1");
      },
      with_cache(""));
}

TEST(Autotuner, MayBeginWithTheFirstStep) {
  run_thread_ranks(
      2,
      [](Communicator& world) {
        PretendedTraining training({1.0, 0.8, 0.9}, world.rank());
        Autotuner tuner(world, training.space(), {.training_steps = 40, .most_share = 1, .warm_up = 0});
        for (int step = 0; step < 40; ++step) tuner.end_step(training.step());
        ASSERT_TRUE(tuner.is_settled());
        EXPECT_EQ(tuner.outcome()->setting, "setting 1");
      },
      with_cache(""));
}

TEST(Autotuner, LeavesOutStepsThatDoNotCount) {
  run_thread_ranks(
      2,
      [](Communicator& world) {
        PretendedTraining training({1.0, 0.8, 0.9}, world.rank());
        Autotuner tuner(world, training.space(), {.training_steps = 200, .most_share = 0.5});
        for (int step = 0; step < 200; ++step) {
          // Most of what is long belongs to the best setting; ranks differ in which steps those are.
          bool const saves = training.set == 1 && (step + world.rank()) % 3 != 0;
          tuner.end_step(saves ? seconds(50) : training.step(), !saves);
        }
        ASSERT_TRUE(tuner.is_settled());
        EXPECT_LE(tuner.outcome()->steps, 100U);
        EXPECT_EQ(tuner.outcome()->setting, "setting 1");
        EXPECT_NEAR(tuner.outcome()->seconds, 0.8, 0.1);
      },
      with_cache(""));
}

TEST(Autotuner, GivesUpWhereNoStepEverCounts) {
  run_thread_ranks(
      2,
      [](Communicator& world) {
        PretendedTraining training({1.0, 0.8, 0.9}, world.rank());
        Autotuner tuner(world, training.space(), {.training_steps = 200, .most_share = 0.5});
        for (int step = 0; step < 200; ++step) tuner.end_step(training.step(), world.rank() == 0);
        ASSERT_TRUE(tuner.is_settled());
        EXPECT_LE(tuner.outcome()->steps, 100U);
        EXPECT_EQ(tuner.outcome()->setting, "setting 0");
        EXPECT_EQ(training.set, 0U);
      },
      with_cache(""));
}

TEST(Autotuner, TriesNothingInAShortTraining) {
  ::testing::internal::CaptureStderr();
  run_thread_ranks(
      2,
      [](Communicator& world) {
        PretendedTraining training({1.0, 0.8, 0.9}, world.rank());
        Autotuner tuner(world, training.space(), {.training_steps = 50});
        EXPECT_TRUE(tuner.is_settled());
        EXPECT_TRUE(training.applied.empty());
        EXPECT_EQ(tuner.outcome()->setting, "setting 0");
        EXPECT_TRUE(std::isnan(tuner.outcome()->seconds));
      },
      with_cache(""));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("too few"), std::string::npos);
}

TEST(Autotuner, LeavesOutWhatThereIsNoMemoryFor) {
  run_thread_ranks(
      2,
      [](Communicator& world) {
        PretendedTraining training({1.0, 0.5, 0.9}, world.rank());
        TuningSpace space = training.space();
        space.candidates[1].apply = [] { throw Error(ErrorCode::out_of_memory, "too large"); };
        Autotuner tuner(world, std::move(space), {.training_steps = 100, .most_share = 1});
        for (int step = 0; step < 100; ++step) tuner.end_step(training.step());
        EXPECT_EQ(tuner.outcome()->setting, "setting 2");
        EXPECT_EQ(training.set, 2U);
      },
      with_cache(""));
}

TEST(Autotuner, BeginsWithWhatAnEarlierRunFound) {
  TemporaryCache const cache;
  ::testing::internal::CaptureStderr();
  auto const run = [&](std::string const& workload, std::size_t steps, bool expect_cached) {
    run_thread_ranks(
        2,
        [&](Communicator& world) {
          PretendedTraining training({1.0, 0.8, 0.9, 0.7}, world.rank());
          Autotuner tuner(world, training.space(), {.training_steps = steps, .most_share = 1, .workload = workload});
          EXPECT_EQ(tuner.is_settled(), expect_cached);
          for (std::size_t step = 0; step < steps; ++step) tuner.end_step(training.step());
          EXPECT_EQ(tuner.outcome()->from_cache, expect_cached);
          if (steps < 20) return;  // too few for all of them
          EXPECT_EQ(tuner.outcome()->setting, "setting 3");
          EXPECT_EQ(training.set, 3U);
          EXPECT_NEAR(tuner.outcome()->default_seconds, 1.0, 0.05);
        },
        with_cache(cache.path()));
  };
  run("batch 8", 100, false);
  run("batch 8", 100, true);
  run("batch 16", 100, false);
  run("batch 16", 100, true);
  run("batch 32", 8, false);  // two settings tried
  run("batch 32", 8, true);
  run("batch 32", 100, false);  // more can be tried now
  run("batch 32", 8, true);
  static_cast<void>(::testing::internal::GetCapturedStderr());
}

TEST(Autotuner, MeasuresAnewWhereTheCacheIsNone) {
  TemporaryCache const cache;
  std::ofstream(cache.path()) << "{\"format\": \"weft autotune 1\", \"trainings\": {\"a";
  ::testing::internal::CaptureStderr();
  for (int run = 0; run < 2; ++run) {
    run_thread_ranks(
        2,
        [&](Communicator& world) {
          PretendedTraining training({1.0, 0.8}, world.rank());
          Autotuner tuner(world, training.space(), {.training_steps = 40, .most_share = 1});
          EXPECT_FALSE(tuner.is_settled());
          for (int step = 0; step < 40; ++step) tuner.end_step(training.step());
          EXPECT_EQ(tuner.outcome()->setting, "setting 1");
        },
        with_cache(cache.path()));
  }
  std::string const said = ::testing::internal::GetCapturedStderr();
  std::size_t const first = said.find("WEFT_AUTOTUNE_CACHE");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("WEFT_AUTOTUNE_CACHE", first + 1), std::string::npos) << said;
}

TEST(Autotuner, RefusesRanksThatWouldTryOtherThings) {
  using Change = void (*)(TuningSpace&, AutotunerOptions&);
  std::array<std::pair<char const*, Change>, 7> const changes{{
      {"the model", [](TuningSpace& space, AutotunerOptions&) { space.model = "another"; }},
      {"candidates", [](TuningSpace& space, AutotunerOptions&) { space.candidates[1].name = "another"; }},
      {"candidates", [](TuningSpace& space, AutotunerOptions&) { space.candidates.pop_back(); }},
      {"training_steps", [](TuningSpace&, AutotunerOptions& options) { options.training_steps = 99; }},
      {"most_share", [](TuningSpace&, AutotunerOptions& options) { options.most_share = 0.9; }},
      {"warm_up", [](TuningSpace&, AutotunerOptions& options) { options.warm_up = 5; }},
      {"workload", [](TuningSpace&, AutotunerOptions& options) { options.workload = "another"; }},
  }};
  for (auto const& [name, change] : changes) {
    run_thread_ranks(
        3,
        [&, name = name, change = change](Communicator& world) {
          PretendedTraining training({1.0, 0.8, 0.9}, world.rank());
          TuningSpace space = training.space();
          AutotunerOptions options{.training_steps = 100};
          if (world.rank() == 1) change(space, options);
          try {
            Autotuner const tuner(world, std::move(space), options);
            ADD_FAILURE() << name << " may differ";
          } catch (Error const& error) {
            EXPECT_EQ(error.code(), ErrorCode::mismatch);
            EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
            EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
          }
        },
        with_cache(""));
  }
}

TEST(Autotuner, RefusesBadOptionsBeforeAnythingIsSent) {
  run_thread_ranks(
      1,
      [](Communicator& world) {
        PretendedTraining training({1.0, 0.8}, 0);
        auto const make = [&](TuningSpace space, AutotunerOptions const& options) {
          Autotuner const tuner(world, std::move(space), options);
        };
        auto const expect = [&](TuningSpace space, AutotunerOptions const& options, char const* what) {
          try {
            make(std::move(space), options);
            ADD_FAILURE() << what;
          } catch (Error const& error) {
            EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
            EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
          }
        };
        expect({"none", {}}, {}, "no candidates");
        expect({"none", {{"a", {}}}}, {}, "'a' has nothing");
        expect({"twice", {{"a", [] {}}, {"a", [] {}}}}, {}, "two candidates are called 'a'");
        expect(training.space(), {.most_share = 0}, "most_share");
        expect(training.space(), {.most_share = 1.5}, "most_share");
        expect(training.space(), {.most_share = std::nan("")}, "most_share");
        expect(training.space(), {.least_gain = -1}, "least_gain");
        expect(training.space(), {.least_gain = 1}, "least_gain");
      },
      with_cache(""));
}

/// Parameters after some steps of gradients that depend on them, tuned or not.
std::vector<float> trained(Communicator& world, bool tuned, std::vector<std::string>* tried = nullptr) {
  constexpr std::size_t kTensors = 40;
  constexpr int kSteps = 60;
  std::vector<std::vector<float>> values;
  std::vector<BufferView> parameters;
  std::mt19937_64 random(3);
  for (std::size_t t = 0; t < kTensors; ++t) {
    values.emplace_back(random() % 30000);
    for (float& value : values.back()) value = static_cast<float>(random() % 1000) * 1e-3F;
  }
  for (auto& each : values) parameters.emplace_back(std::span<float>(each));
  DataParallel ddp(world, parameters, {.stream = {}});
  TuningSpace space = tuning_space(ddp);
  if (tried != nullptr) {
    for (TuningCandidate& candidate : space.candidates) {
      candidate.apply = [tried, name = candidate.name, apply = candidate.apply] {
        tried->push_back(name);
        apply();
      };
    }
  }
  std::optional<Autotuner> tuner;
  if (tuned) tuner.emplace(world, std::move(space), AutotunerOptions{.training_steps = kSteps, .most_share = 1});
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t t = kTensors; t-- > 0;) {
      auto* const gradient = static_cast<float*>(ddp.gradient(t).data);
      for (std::size_t i = 0; i < values[t].size(); ++i) {
        gradient[i] = std::sin(values[t][i] * static_cast<float>(world.rank() + 2)) + static_cast<float>(step) * 0.01F;
      }
      ddp.mark_ready(t);
    }
    ddp.finish();
    for (std::size_t t = 0; t < kTensors; ++t) {
      auto const* const gradient = static_cast<float const*>(ddp.gradient(t).data);
      for (std::size_t i = 0; i < values[t].size(); ++i) values[t][i] -= 0.05F * gradient[i];
    }
    if (tuner) tuner->end_step();
  }
  EXPECT_TRUE(!tuner || tuner->is_settled());
  std::vector<float> all;
  for (auto const& each : values) all.insert(all.end(), each.begin(), each.end());
  return all;
}

TEST(Autotuner, KeepsTheBitsOfDataParallel) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    ::testing::internal::CaptureStderr();
    run_thread_ranks(
        ranks,
        [](Communicator& world) {
          std::vector<std::string> tried;
          auto const plain = trained(world, false);
          auto const tuned = trained(world, true, &tried);
          ASSERT_EQ(plain.size(), tuned.size());
          EXPECT_EQ(std::memcmp(plain.data(), tuned.data(), plain.size() * sizeof(float)), 0);
          EXPECT_GE(std::set<std::string>(tried.begin(), tried.end()).size(), 5U);
        },
        with_cache(""));
    static_cast<void>(::testing::internal::GetCapturedStderr());
  }
}

}  // namespace
}  // namespace weft::test
