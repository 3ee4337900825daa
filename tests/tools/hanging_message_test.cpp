// Jobs that hang in point-to-point calls, and what weft-doctor says of them.
#include <unistd.h>

#include <csignal>
#include <vector>

#include "harness/ranks.hpp"
#include "job.hpp"
#include "weft/error.hpp"
#include "weft/flight_recorder.hpp"
#include "weft/messenger.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::int64_t> exchange_pids(Communicator& world) {
  std::vector<std::int64_t> const mine{::getpid()};
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span(mine), std::span(all));
  return all;
}

TEST(HangingMessage, TheRankThatDoesNotSendIsNamed) {
  DumpFolder const folder;
  auto const exits = run_forked_ranks(3,
                                      [&](Communicator& world) {
                                        FlightDumpSignal const dump_on_signal;
                                        auto const pids = exchange_pids(world);
                                        std::vector<float> data(7);
                                        if (world.rank() == 1) {
                                          world.recv(std::span(data), 0);
                                          world.recv(std::span(data), 0);  // comes when the dumps are there
                                        }
                                        bool dumped = true;
                                        if (world.rank() == 0) {
                                          world.send(std::span<float const>(data), 1);
                                          dumped =
                                              folder.dump_until([&] { signal_all(pids); }, 3, "rank 1 waits in recv");
                                          world.send(std::span<float const>(data), 1);
                                        }
                                        world.barrier();
                                        return dumped ? 0 : 1;
                                      },
                                      {.config = folder.config(), .name = "pipeline"});
  expect_all_succeeded(exits);
  auto const result = run_doctor("--least-wait 0.2 " + folder.path());
  expect_says(result, 1, "communicator pipeline, ");
  expect_says(result, 1,
              "rank 0 never sent message 2 to rank 1; it has made no call since all_gather(1 × i64), call 1");
  expect_says(result, 1, "rank 1 waits in recv(7 × f32, from rank 0), message 2, since");
  expect_says(run_doctor("--json --least-wait 0.2 " + folder.path()), 1, "\"finding\": \"unanswered\"");
}

/// Ranks 0 to 2, of which rank 1 gets a message of rank 0's and waits for a second one, `from` a rank or any.
std::string doctor_on_messenger(int from, std::string const& words) {
  DumpFolder const folder;
  auto const exits = run_forked_ranks(3,
                                      [&](Communicator& world) {
                                        FlightDumpSignal const dump_on_signal;
                                        auto const pids = exchange_pids(world);
                                        Messenger messenger(world);
                                        std::vector<float> data(7);
                                        if (world.rank() == 1) {
                                          messenger.receive(std::span(data), from, 3).wait();
                                          messenger.receive(std::span(data), from, 3).wait();
                                        }
                                        bool dumped = true;
                                        if (world.rank() == 0) {
                                          messenger.send(std::span<float const>(data), 1, 3).wait();
                                          messenger.send(std::span<float const>(data), 1, 4).wait();
                                          dumped = folder.dump_until([&] { signal_all(pids); }, 3, words);
                                          messenger.send(std::span<float const>(data), 1, 3).wait();
                                        }
                                        world.barrier();
                                        return dumped ? 0 : 1;
                                      },
                                      {.config = folder.config()});
  expect_all_succeeded(exits);
  auto const result = run_doctor("--least-wait 0.2 " + folder.path());
  EXPECT_EQ(1, result.code) << result.output;
  return result.output;
}

TEST(HangingMessage, AMessengersReceiveIsCountedByItsTag) {
  auto const said = doctor_on_messenger(0, "rank 1 waits in recv");
  EXPECT_NE(std::string::npos, said.find("rank 0 never sent message 2 to rank 1")) << said;
  EXPECT_NE(std::string::npos, said.find("rank 1 waits in recv(7 × f32, from rank 0, tag 3), message 2, since"))
      << said;
}

TEST(HangingMessage, AMessengersReceiveFromAnyRank) {
  auto const said = doctor_on_messenger(Messenger::kAnyRank, "rank 1 is in recv");
  EXPECT_NE(std::string::npos, said.find("rank 1 is in recv(7 × f32, from any rank, tag 3), since")) << said;
}

TEST(HangingMessage, ACircleOfReceivesTimesOutAndIsNamed) {
  DumpFolder const folder;
  auto config = folder.config();
  config.timeout = kImpatience;
  auto const exits = run_forked_ranks(3,
                                      [](Communicator& world) {
                                        std::vector<float> data(7);
                                        auto const before = (world.rank() + 2) % 3;
                                        try {
                                          world.recv(std::span(data), before);
                                        } catch (Error const& error) {
                                          return error.code() == ErrorCode::timeout ? 0 : 2;
                                        }
                                        return 1;
                                      },
                                      {.config = config});
  expect_all_succeeded(exits);
  expect_says(run_doctor(folder.path()), 1, "ranks 0 to 2 wait for one another");
}

TEST(HangingMessage, LargeSendsThatNobodyReceives) {
  DumpFolder const folder;
  auto config = folder.config();
  config.timeout = kImpatience;
  auto const exits = run_forked_ranks(2,
                                      [](Communicator& world) {
                                        std::vector<float> data(1'000'000);
                                        try {
                                          if (world.rank() == 0) world.send(std::span<float const>(data), 1);
                                          world.barrier();
                                        } catch (Error const& error) {
                                          return error.code() == ErrorCode::timeout ? 0 : 2;
                                        }
                                        return 1;
                                      },
                                      {.config = config});
  expect_all_succeeded(exits);
  expect_says(run_doctor(folder.path()), 1, "rank 1 never received message 1 from rank 0");
}

}  // namespace
}  // namespace weft::test
