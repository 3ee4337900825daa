#include "collectives/flight/flight_recorder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "weft/flight_recorder.hpp"

namespace weft {
namespace {

Call numbered(std::uint64_t sequence, bool on_stream = false) {
  Call call;
  call.sequence = sequence;
  call.on_stream = on_stream;
  // Everything is made from the number, so that a mixture of two calls shows.
  call.contract = {.count = sequence * 3,
                   .root = static_cast<std::uint32_t>(sequence * 7),
                   .operation = Operation::broadcast,
                   .dtype = DataType::f32};
  return call;
}

void run(FlightRing& ring, Call const& call) {
  ring.start(call);
  ring.finish(call);
}

TEST(FlightRing, KeepsTheLastCallsInOrder) {
  FlightRing ring(6);
  EXPECT_EQ(ring.capacity(), 8U);
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) run(ring, numbered(sequence));
  auto const entries = ring.entries();
  ASSERT_EQ(entries.size(), 8U);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].sequence, 13 + i);
    EXPECT_EQ(entries[i].state, FlightState::finished);
    EXPECT_EQ(entries[i].contract, numbered(13 + i).contract);
    EXPECT_LE(entries[i].started, entries[i].finished);
  }
  EXPECT_EQ(ring.ended(), 20U);
}

TEST(FlightRing, WithoutRoomRecordsNothing) {
  FlightRing ring(0);
  ring.enqueue(numbered(1));
  run(ring, numbered(1));
  EXPECT_TRUE(ring.entries().empty());
}

TEST(FlightRing, StatesFollowTheCall) {
  FlightRing ring(4);
  auto const state = [&] { return ring.entries().back().state; };
  auto const call = numbered(1, true);
  auto const before = std::chrono::steady_clock::now();
  ring.enqueue(call);
  EXPECT_EQ(state(), FlightState::enqueued);
  ring.start(call);
  EXPECT_EQ(state(), FlightState::started);
  ring.finish(call, FlightState::failed);
  EXPECT_EQ(state(), FlightState::failed);
  auto const entry = ring.entries().back();
  EXPECT_TRUE(entry.on_stream);
  EXPECT_LE(before, entry.enqueued);
  EXPECT_LE(entry.enqueued, entry.started);
  EXPECT_LE(entry.started, entry.finished);
  EXPECT_LE(entry.finished, std::chrono::steady_clock::now());
}

TEST(FlightRing, OnlyWhatIsBriefAndTimedCoarselyEndsWhenItBegan) {
  using std::chrono::milliseconds;
  auto const duration = [](bool brief, bool on_stream, std::uint64_t count) {
    FlightRing ring(1);
    auto call = numbered(1, on_stream);
    call.contract.count = count;
    ring.start(call);
    std::this_thread::sleep_for(milliseconds(30));  // more than two ticks of the coarsest clock
    call.brief = brief;
    ring.finish(call);
    auto const entry = ring.entries().back();
    return entry.finished - entry.started;
  };
  EXPECT_EQ(duration(true, false, 8), milliseconds(0));
  EXPECT_GE(duration(false, false, 8), milliseconds(10));
  EXPECT_GE(duration(true, true, 8), milliseconds(10));
  EXPECT_GE(duration(true, false, std::uint64_t{1} << 20U), milliseconds(10));
}

TEST(FlightRing, CallsFarAheadDoNotPushOutTheRunningOne) {
  FlightRing ring(4);
  for (std::uint64_t sequence = 1; sequence <= 10; ++sequence) ring.enqueue(numbered(sequence, true));
  ring.start(numbered(1, true));
  auto const entries = ring.entries();
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries.front().sequence, 1U);
  EXPECT_EQ(entries.front().state, FlightState::started);
  EXPECT_EQ(entries.back().sequence, 4U);
  EXPECT_EQ(ring.issued(), 10U);
  ring.finish(numbered(1, true));
  for (std::uint64_t sequence = 2; sequence <= 10; ++sequence) run(ring, numbered(sequence, true));
  EXPECT_EQ(ring.entries().back().sequence, 10U);
}

TEST(FlightRing, AReaderNeverSeesHalfACall) {
  FlightRing ring(8);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint64_t sequence = 1; !done.load(std::memory_order_relaxed); ++sequence) {
      if (sequence % 3 == 0) ring.enqueue(numbered(sequence));
      run(ring, numbered(sequence));
    }
  });
  std::size_t seen = 0;
  auto const end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (seen == 0 || std::chrono::steady_clock::now() < end) {
    for (auto const& entry : ring.entries()) {
      ASSERT_EQ(entry.contract, numbered(entry.sequence).contract);
      ASSERT_GT(entry.started.time_since_epoch().count() + entry.enqueued.time_since_epoch().count(), 0);
      ++seen;
    }
  }
  done = true;
  writer.join();
}

Message to_peer(int peer, std::uint64_t number) {
  return {.dtype = DataType::f32, .peer = peer, .bytes = 4 * number, .number = number};
}

TEST(MessageRing, KeepsTheOneThatHangs) {
  MessageRing ring(4);
  auto const hangs = ring.start(to_peer(7, 3), false);
  for (std::uint64_t number = 10; number < 30; ++number) {
    auto const record = ring.start(to_peer(1, number), true);
    ASSERT_NE(record, 0U);
    ring.finish(record, to_peer(1, number), true, FlightState::finished);
  }
  auto const entries = ring.entries();
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries.front().record, hangs);
  EXPECT_EQ(entries.front().state, FlightState::started);
  EXPECT_EQ(entries.front().message.peer, 7);
  EXPECT_EQ(entries.front().message.number, 3U);
  EXPECT_EQ(entries.back().message.number, 29U);
  EXPECT_EQ(entries.back().state, FlightState::finished);
  EXPECT_TRUE(entries.back().on_stream);
}

TEST(MessageRing, WithoutRoomRecordsNothing) {
  MessageRing none(0);
  EXPECT_EQ(none.start(to_peer(1, 1), false), 0U);
  none.finish(0, to_peer(1, 1), false, FlightState::finished);
  EXPECT_TRUE(none.entries().empty());
  MessageRing full(2);
  EXPECT_NE(full.start(to_peer(1, 1), false), 0U);
  EXPECT_NE(full.start(to_peer(1, 2), false), 0U);
  EXPECT_EQ(full.start(to_peer(1, 3), false), 0U) << "both slots are of messages under way";
}

TEST(MessageRing, ManyThreadsAndAReader) {
  MessageRing ring(8);
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (int peer = 0; peer < 3; ++peer) {
    writers.emplace_back([&, peer] {
      for (std::uint64_t number = 1; !done.load(std::memory_order_relaxed); ++number) {
        auto const message = to_peer(peer, number);
        ring.finish(ring.start(message, false), message, false, FlightState::finished);
      }
    });
  }
  auto const end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  std::size_t seen = 0;
  while (seen == 0 || std::chrono::steady_clock::now() < end) {
    for (auto const& entry : ring.entries()) {
      ASSERT_EQ(entry.message.bytes, 4 * entry.message.number);
      ++seen;
    }
  }
  done = true;
  for (auto& writer : writers) writer.join();
}

TEST(FlightRecorder, WritesMessagesDown) {
  FlightRecorder recorder({.communicator = 1, .rank = 1, .size = 2, .pid = 7, .host = "node1", .name = "pipeline"},
                          Config{});
  Message const sent{
      .direction = Message::Direction::send, .dtype = DataType::f64, .peer = 0, .bytes = 24, .number = 4};
  Message const awaited{.direction = Message::Direction::receive, .dtype = DataType::u8, .peer = 0, .bytes = 5};
  recorder.record({}, std::span(&sent, 1), [] {});
  std::array const both{sent, awaited};
  EXPECT_THROW(recorder.record({}, both, [] { throw Error(ErrorCode::timeout, "rank 0 did not come"); }), Error);
  auto const file = nlohmann::json::parse(recorder.to_json("request"));
  EXPECT_EQ(file["name"], "pipeline");
  ASSERT_EQ(file["messages"].size(), 3U);
  EXPECT_EQ(file["messages"][0]["message"], "send(3 × f64, to rank 0)");
  EXPECT_EQ(file["messages"][0]["number"], 5);
  EXPECT_EQ(file["messages"][0]["state"], "finished");
  EXPECT_EQ(file["messages"][2]["message"], "recv(5 × u8, from rank 0)");
  EXPECT_EQ(file["messages"][2]["error"]["code"], "timeout");
}

TEST(FlightRecorder, WritesErrorsDown) {
  FlightRecorder recorder({.communicator = 0xabc, .rank = 1, .size = 2, .pid = 7, .host = "node1"}, Config{});
  recorder.record(numbered(1), [] {});
  EXPECT_THROW(recorder.record(numbered(2), [] { throw Error(ErrorCode::timeout, "rank 0 did not come"); }), Error);
  EXPECT_THROW(recorder.record(numbered(3), [] { throw std::runtime_error("odd \xff"); }), std::runtime_error);
  auto const file = nlohmann::json::parse(recorder.to_json("request"));
  EXPECT_EQ(file["communicator"], "0000000000000abc");
  EXPECT_EQ(file["rank"], 1);
  ASSERT_EQ(file["calls"].size(), 3U);
  EXPECT_EQ(file["calls"][0]["state"], "finished");
  EXPECT_EQ(file["calls"][0]["call"], "broadcast(3 × f32, root 7)");
  EXPECT_EQ(file["calls"][0]["bytes"], 12);
  EXPECT_EQ(file["calls"][1]["state"], "failed");
  EXPECT_EQ(file["calls"][1]["error"]["code"], "timeout");
  EXPECT_EQ(file["calls"][1]["error"]["text"], "rank 0 did not come");
  EXPECT_EQ(file["calls"][2]["error"]["code"], "other");
  auto const unix_now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  EXPECT_NEAR(file["calls"][0]["started_ns"].get<double>(), static_cast<double>(unix_now), 10e9);
}

TEST(FlightRecorder, AGroupIsOneCall) {
  FlightRecorder recorder({.communicator = 1, .rank = 0, .size = 2, .pid = 7, .host = "node1"}, Config{});
  auto call = numbered(1);
  call.contract.group = {.elements = 3, .sizes = 0xab, .calls = 2};
  recorder.record(call, [] {});
  recorder.record(numbered(2), [] {});
  auto const calls = nlohmann::json::parse(recorder.to_json("request"))["calls"];
  EXPECT_EQ(calls[0]["call"], "group of 2 broadcast calls (3 × f32 in all, root 7, sizes 000000ab)");
  EXPECT_EQ(calls[0]["merged"], 2);
  EXPECT_EQ(calls[0]["count"], 3);
  EXPECT_EQ(calls[1]["merged"], 1);
}

TEST(FlightRecorder, AFolderThatCannotBeWrittenIsNoCrash) {
  Config config;
  config.flight_directory = "/proc/weft";
  FlightRecorder recorder({}, config);
  EXPECT_THROW(recorder.record(numbered(1), [] { throw Error(ErrorCode::timeout, "late"); }), Error);
  try {
    (void)recorder.dump("request");
    FAIL();
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_NE(std::string(error.what()).find("WEFT_FLIGHT_DIR"), std::string::npos) << error.what();
  }
}

TEST(FlightRecorder, WhoWritesAtTheSameTimeLeavesAWholeFile) {
  auto folder = std::filesystem::temp_directory_path() / fmt::format("weft_flight_writers_{}", ::getpid());
  Config config;
  config.flight_directory = folder.string();
  FlightRecorder recorder({}, config);
  for (std::uint64_t sequence = 1; sequence <= 40; ++sequence) recorder.record(numbered(sequence), [] {});
  std::atomic<int> failed{0};
  std::vector<std::thread> writers;
  for (std::size_t writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (int turn = 0; turn < 50; ++turn) {
        try {
          std::ifstream file(recorder.dump(std::string(1 + 1000 * writer, 'r')));
          if (!nlohmann::json::accept(file)) ++failed;
        } catch (Error const&) {
          ++failed;
        }
      }
    });
  }
  for (auto& writer : writers) writer.join();
  std::filesystem::remove_all(folder);
  EXPECT_EQ(0, failed);
}

std::atomic<int> g_handled{0};

struct sigaction current_action() {
  struct sigaction action {};
  sigaction(SIGUSR2, nullptr, &action);
  return action;
}

TEST(FlightDumpSignal, CallsTheHandlerThatWasThereAndPutsItBack) {
  g_handled = 0;
  ::signal(SIGUSR2, [](int) { ++g_handled; });
  auto const before = current_action().sa_handler;
  {
    FlightDumpSignal const one;
    FlightDumpSignal const another;
    ::raise(SIGUSR2);
    EXPECT_EQ(g_handled, 1);
  }
  EXPECT_EQ(current_action().sa_handler, before);
  {
    FlightDumpSignal const again;
    ::raise(SIGUSR2);
    EXPECT_EQ(g_handled, 2);
  }
  ::signal(SIGUSR2, SIG_DFL);
}

struct sigaction g_taken_over {};

void call_what_was_there(int signal, siginfo_t* info, void* context) {
  ++g_handled;
  if (g_handled < 10) g_taken_over.sa_sigaction(signal, info, context);
}

TEST(FlightDumpSignal, DoesNotCallItselfThroughAHandlerThatTookOver) {
  {
    FlightDumpSignal const first;
    g_taken_over = current_action();
    struct sigaction taking {};
    taking.sa_sigaction = call_what_was_there;
    taking.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR2, &taking, nullptr);
  }
  {
    FlightDumpSignal const second;  // before which is what calls ours
    g_handled = 0;
    ::raise(SIGUSR2);
    EXPECT_EQ(g_handled, 1);
  }
  ::signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace weft
