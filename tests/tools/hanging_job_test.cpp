#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <vector>

#include "harness/ranks.hpp"
#include "harness/tally.hpp"
#include "job.hpp"
#include "weft/error.hpp"
#include "weft/flight_recorder.hpp"
#include "weft/launch.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

void sum(Communicator& world) {
  std::vector<float> a(1024, 1.0F);
  world.all_reduce(std::span(a), std::span(a), ReduceOp::sum);
}

/// Every rank's process, told to all.
std::vector<std::int64_t> exchange_pids(Communicator& world) {
  std::vector<std::int64_t> const mine{::getpid()};
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span(mine), std::span(all));
  return all;
}

int survive(Communicator& world, ErrorCode code) {
  try {
    sum(world);
  } catch (Error const& error) {
    return error.code() == code ? 0 : 2;
  }
  return 1;
}

TEST(HangingJob, SignalToEveryRankNamesTheOneThatIsBusyElsewhere) {
  DumpFolder const folder;
  auto const exits =
      run_forked_ranks(3,
                       [&](Communicator& world) {
                         FlightDumpSignal const dump_on_signal;
                         auto const pids = exchange_pids(world);
                         world.barrier();
                         bool dumped = true;
                         if (world.rank() == 2) {
                           dumped = folder.dump_until([&] { signal_all(pids); }, 3, "ranks 0 and 1 wait in it");
                         }
                         sum(world);
                         return dumped ? 0 : 1;
                       },
                       {.config = folder.config()});
  expect_all_succeeded(exits);
  auto const result = run_doctor("--least-wait 0.2 " + folder.path());
  expect_says(result, 1,
              "rank 2 never reached all_reduce(1024 × f32, sum), call 3; it has made no call since barrier(), call 2");
  expect_says(result, 1, "ranks 0 and 1 wait in it, call 3, since");
  auto const as_json = run_doctor("--json --least-wait 0.2 " + folder.path() + "/weft-flight.*.json");
  expect_says(as_json, 1, "\"finding\": \"behind\"");
  expect_says(run_doctor("--least-wait 100 " + folder.path()), 0, "nothing is missing");
}

TEST(HangingJob, ARankThatDoesNotComeToMakeACommunicatorIsNamed) {
  DumpFolder const folder;
  auto const exits = run_forked_ranks(3,
                                      [&](Communicator& world) {
                                        FlightDumpSignal const dump_on_signal;
                                        auto const pids = exchange_pids(world);
                                        bool dumped = true;
                                        auto const waits = "rank 2 never came to make it, ranks 0 and 1 wait since";
                                        if (world.rank() == 2)
                                          dumped = folder.dump_until([&] { signal_all(pids); }, 3, waits);
                                        auto again = world.duplicate({.name = "the second one"});
                                        sum(again);
                                        return dumped ? 0 : 1;
                                      },
                                      {.config = folder.config()});
  expect_all_succeeded(exits);
  expect_says(run_doctor("--least-wait 0.2 " + folder.path()), 1,
              "communicator the second one, not made yet (3 ranks): ");
}

TEST(HangingJob, SignalToTheLauncherReachesEveryRank) {
  DumpFolder const folder;
  Tally dumped;
  pid_t const launcher = ::fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) {
    LaunchOptions options;
    options.ranks = 3;
    options.communicator.config = folder.config();
    ::_exit(launch(options, [&](Communicator& world) {
      world.barrier();
      if (world.rank() == 1) std::ofstream(folder.path() + "/ready");
      if (world.rank() == 1) dumped.await(1);
      sum(world);
      return 0;
    }));
  }
  while (!std::filesystem::exists(folder.path() + "/ready")) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(folder.dump_until([&] { ::kill(launcher, SIGUSR2); }, 3, "rank 1 never reached"));
  dumped.add();
  int status = 0;
  ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  expect_says(run_doctor("--least-wait 0.1 " + folder.path()), 1,
              "rank 1 never reached all_reduce(1024 × f32, sum), call 2");
}

TEST(HangingJob, ADifferentCallIsNamed) {
  DumpFolder const folder;
  auto const exits = run_forked_ranks(3,
                                      [](Communicator& world) {
                                        world.barrier();
                                        if (world.rank() != 1) return survive(world, ErrorCode::mismatch);
                                        std::vector<float> a(1024);
                                        try {
                                          world.broadcast(std::span(a), 0);
                                        } catch (Error const& error) {
                                          return error.code() == ErrorCode::mismatch ? 0 : 2;
                                        }
                                        return 1;
                                      },
                                      {.config = folder.config()});
  expect_all_succeeded(exits);
  expect_says(run_doctor(folder.path()), 1,
              "rank 1 made broadcast(1024 × f32, root 0) as call 2 where the others made all_reduce(1024 × f32, sum)");
}

TEST(HangingJob, ADeadRankIsNamed) {
  DumpFolder const folder;
  auto const exits = run_forked_ranks(3,
                                      [](Communicator& world) {
                                        world.barrier();
                                        if (world.rank() == 2) ::raise(SIGKILL);
                                        return survive(world, ErrorCode::peer_lost);
                                      },
                                      {.config = folder.config()});
  EXPECT_EQ(exits[0].code, 0) << exits[0].output;
  EXPECT_EQ(exits[1].code, 0) << exits[1].output;
  expect_says(run_doctor(folder.path()), 1, "no dump from rank 2: it died or was not started");
}

TEST(HangingJob, ARankThatComesTooLateIsNamed) {
  DumpFolder const folder;
  auto config = folder.config();
  config.timeout = kImpatience;
  Tally gave_up;
  auto const exits = run_forked_ranks(3,
                                      [&](Communicator& world) {
                                        if (world.rank() == 2) {
                                          gave_up.await(2);
                                          std::this_thread::sleep_for(100ms);  // ranks' clocks are compared
                                        }
                                        int const code = survive(world, ErrorCode::timeout);
                                        gave_up.add();
                                        return code;
                                      },
                                      {.config = config});
  expect_all_succeeded(exits);
  expect_says(run_doctor(folder.path()), 1, "rank 2 came to all_reduce(1024 × f32, sum), call 1");
}

TEST(HangingJob, AHealthyOneIsSaidToBe) {
  DumpFolder const folder;
  auto const exits = run_forked_ranks(2,
                                      [](Communicator& world) {
                                        for (int call = 0; call < 600; ++call)
                                          sum(world);  // more than the recorder keeps
                                        return dump_flight_recorders().size() == 1 ? 0 : 1;
                                      },
                                      {.config = folder.config()});
  expect_all_succeeded(exits);
  expect_says(run_doctor(folder.path()), 0, "(2 ranks): all ranks finished call 600: nothing is missing");
}

TEST(HangingJob, RanksOfOneProcessHaveADumpEach) {
  DumpFolder const folder;
  run_thread_ranks(3,
                   [&](Communicator& world) {
                     Communicator second = world.duplicate({.config = folder.config()});
                     second.barrier();
                     if (world.rank() == 0) {
                       EXPECT_EQ(dump_flight_recorders().size(), 6U);
                     }
                     world.barrier();
                   },
                   {.config = folder.config()});
  EXPECT_EQ(folder.dumps(), 6U);
}

}  // namespace
}  // namespace weft::test
