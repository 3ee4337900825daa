#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "harness/tally.hpp"
#include "weft/bucketer.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Action>
Error error_of(Action&& action) {
  try {
    action();
  } catch (Error const& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return {ErrorCode::system, "none"};
}

bool mentions(Error const& error, std::string const& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

void mark_all(Bucketer& bucketer) {
  for (std::size_t t = 0; t < bucketer.tensor_count(); ++t) bucketer.mark_ready(t);
}

// What every survivor must see, wherever it learns of the loss.
void expect_loss_and_no_hang(Bucketer& bucketer) {
  auto const begin = Clock::now();
  Error const first = error_of([&] {
    mark_all(bucketer);
    bucketer.finish();
  });
  EXPECT_LT(Clock::now() - begin, kNoticed);
  EXPECT_EQ(first.code(), ErrorCode::peer_lost) << first.what();
  // Which bucket depends on how far the lost rank got: its marks may have launched some.
  EXPECT_TRUE(mentions(first, "bucket ") && mentions(first, "rank 1")) << first.what();
  for (int i = 0; i < 2; ++i) {
    Error const later = error_of([&] { bucketer.finish(); });
    EXPECT_EQ(later.code(), ErrorCode::peer_lost);
    EXPECT_STREQ(later.what(), first.what());
  }
  EXPECT_EQ(error_of([&] { bucketer.mark_ready(0); }).code(), ErrorCode::peer_lost);
  EXPECT_EQ(error_of([&] { bucketer.wait(0); }).code(), ErrorCode::peer_lost);
  EXPECT_EQ(error_of([&] { bucketer.set_sync(false); }).code(), ErrorCode::peer_lost);
  EXPECT_NO_THROW(bucketer.set_sync(true));
}

TEST(BucketerFaults, ABucketThatMeetsAnotherCallNamesItsTensors) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(8, TensorSpec{100}), {.rebuild = false, .stream = {}});
    Error const error = error_of([&] {
      if (world.rank() == 0) bucketer.finish();
      if (world.rank() == 1) world.barrier().wait();
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_TRUE(world.rank() == 1 || mentions(error, "bucket 0 of 1 (tensors 7, 6, 5, 4, 3, 2 and 2 more; "))
        << error.what();
    EXPECT_TRUE(mentions(error, "made barrier")) << error.what();
  });
}

TEST(BucketerFaults, SurvivorsOfAKilledRankGetPeerLost) {
  std::vector<RankExit> const exits = run_forked_ranks(3, [](Communicator& world) {
    Bucketer bucketer(world, model(9, 3), {.limits = {4096, 4096}, .stream = {}});
    mark_all(bucketer);
    bucketer.finish();
    if (world.rank() == 1) {
      bucketer.mark_ready(0);
      kill(getpid(), SIGKILL);
    }
    expect_loss_and_no_hang(bucketer);
    return 0;
  });
  EXPECT_EQ(exits[1].signal, SIGKILL);
  for (std::size_t const rank : {0U, 2U}) {
    EXPECT_EQ(exits[rank].code, 0) << exits[rank].output;
    EXPECT_FALSE(exits[rank].timed_out);
  }
  expect_no_children();
}

TEST(BucketerFaults, ARankThatLeavesIsNoticed) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(5, 3));
    if (world.rank() == 1) return;
    expect_loss_and_no_hang(bucketer);
  });
}

TEST(BucketerFaults, DestructionBeforeFinishIsQuiet) {
  std::vector<RankExit> const exits = run_forked_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(9, 3), {.limits = {1, 1}, .stream = {}});
    if (world.rank() == 0) mark_all(bucketer);  // launched, but the peer never comes
    return 0;
  });
  expect_all_succeeded(exits);
}

TEST(BucketerFaults, ATimeoutNamesTheBucketAndDoesNotHang) {
  CommunicatorOptions options;
  options.config.emplace().timeout = kImpatience;
  Tally gave_up;
  run_thread_ranks(
      2,
      [&](Communicator& world) {
        Bucketer bucketer(world, model(5, 3), {.limits = {1, 1}, .stream = {}});
        if (world.rank() == 1) {
          gave_up.await(1);
          EXPECT_THROW(mark_all(bucketer); bucketer.finish(), Error);
          return;
        }
        mark_all(bucketer);
        Error const error = error_of([&] { bucketer.finish(); });
        gave_up.add();
        EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
        EXPECT_TRUE(mentions(error, "bucket ")) << error.what();
      },
      options);
}

TEST(BucketerFaults, AbortReachesFinish) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(5, 3));
    if (world.rank() == 1) {
      world.abort("enough");
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return;
    }
    mark_all(bucketer);
    EXPECT_EQ(error_of([&] { bucketer.finish(); }).code(), ErrorCode::aborted);
  });
}

// Builds a Bucketer whose rank 2 differs, and returns what every rank was told.
std::string disagreement(std::vector<TensorSpec> const& specs, BucketerOptions const& options,
                         std::vector<TensorSpec> const& odd_specs, BucketerOptions const& odd_options) {
  std::vector<std::string> messages(3);
  run_thread_ranks(3, [&](Communicator& world) {
    bool const odd = world.rank() == 2;
    Error const error = error_of([&] { Bucketer(world, odd ? odd_specs : specs, odd ? odd_options : options); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    messages[static_cast<std::size_t>(world.rank())] = error.what();
    world.barrier();  // the communicator is as good as before
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  return messages[0];
}

TEST(BucketerFaults, DifferentModelsOrOptionsNameRankAndDifference) {
  std::vector<TensorSpec> const specs{{4}, {5}, {6}};
  auto const contains = [](std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
  };
  BucketerOptions const defaults;
  EXPECT_TRUE(contains(disagreement(specs, defaults, {{4}, {7}, {6}}, defaults),
                       "rank 2 differs from rank 0: parameter 1 is 7 x f32 there but 5 x f32"));
  EXPECT_TRUE(contains(disagreement(specs, defaults, {{4}, {5}, {6, DataType::bf16}}, defaults),
                       "parameter 2 is 6 x bf16 there but 6 x f32"));
  EXPECT_TRUE(contains(disagreement(specs, defaults, {{4}, {5}}, defaults), "it has 2 parameters but rank 0 has 3"));
  EXPECT_TRUE(contains(disagreement(specs, defaults, {}, defaults), "it has 0 parameters but rank 0 has 3"));
  BucketerOptions small;
  small.limits.bytes = 99;
  EXPECT_TRUE(contains(disagreement(specs, defaults, specs, small), "options.limits.bytes is 99 there"));
  BucketerOptions sum;
  sum.op = ReduceOp::sum;
  EXPECT_TRUE(contains(disagreement(specs, defaults, specs, sum), "options.op is sum there but avg on rank 0"));
  BucketerOptions optimal;
  optimal.policy = BucketPolicy::optimal;
  EXPECT_TRUE(contains(disagreement(specs, defaults, specs, optimal), "options.policy is optimal there but caps"));
  BucketerOptions find;
  find.unused = UnusedGradients::find;
  EXPECT_TRUE(contains(disagreement(specs, defaults, specs, find), "options.unused is find there but zero on rank 0"));
}

}  // namespace
}  // namespace weft::test
