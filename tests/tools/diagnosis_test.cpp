#include "weft_doctor/diagnosis.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::doctor {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 1'700'000'000 * kSecond;
constexpr char const* kSum = "all_reduce(1024 × f32, sum)";
constexpr char const* kBarrier = "barrier()";

/// Times are seconds before the dump.
RecordedCall finished(std::uint64_t sequence, std::string text, double ago = 20) {
  auto const when = kNow - static_cast<std::int64_t>(ago * kSecond);
  return {
      .sequence = sequence, .text = std::move(text), .state = State::finished, .started_ns = when, .finished_ns = when};
}
RecordedCall started(std::uint64_t sequence, std::string text, double ago) {
  return {.sequence = sequence,
          .text = std::move(text),
          .state = State::started,
          .started_ns = kNow - static_cast<std::int64_t>(ago * kSecond)};
}
RecordedCall failed(std::uint64_t sequence, std::string text, double began, double ended, std::string code,
                    std::string error = "what the error says") {
  return {.sequence = sequence,
          .text = std::move(text),
          .state = State::failed,
          .started_ns = kNow - static_cast<std::int64_t>(began * kSecond),
          .finished_ns = kNow - static_cast<std::int64_t>(ended * kSecond),
          .error_code = std::move(code),
          .error_text = std::move(error)};
}

Dump dump(int rank, int size, std::vector<RecordedCall> calls, std::string communicator = "c0ffee", long pid = 0) {
  return {.file = "rank" + std::to_string(rank) + ".json",
          .communicator = std::move(communicator),
          .rank = rank,
          .size = size,
          .pid = pid == 0 ? 100 + rank : pid,
          .host = "node1",
          .written_ns = kNow,
          .calls = std::move(calls)};
}

Verdict only(std::vector<Dump> const& dumps, DiagnosisOptions const& options = {}) {
  auto const verdicts = diagnose(dumps, options);
  EXPECT_EQ(verdicts.size(), 1U);
  return verdicts.front();
}

void expect(Verdict const& verdict, Finding finding, std::vector<int> const& culprits, std::string const& sentence) {
  EXPECT_STREQ(to_string(verdict.finding), to_string(finding));
  EXPECT_EQ(verdict.culprits, culprits);
  EXPECT_EQ(verdict.sentence, sentence);
}

TEST(Diagnosis, AllFinished) {
  expect(only({dump(0, 2, {finished(41, kSum)}), dump(1, 2, {finished(41, kSum)})}), Finding::nothing, {},
         "all ranks finished call 41: nothing is missing");
  expect(only({dump(0, 1, {finished(3, kSum)})}), Finding::nothing, {},
         "its one rank finished call 3: nothing is missing");
  expect(only({dump(0, 2, {}), dump(1, 2, {})}), Finding::nothing, {},
         "all ranks have made no call: nothing is missing");
}

TEST(Diagnosis, RankStuckInAnEarlierCall) {
  auto const ahead = [](int rank) { return dump(rank, 3, {finished(16, kBarrier), started(17, kSum, 12.31)}); };
  auto const verdict = only({ahead(0), ahead(1), dump(2, 3, {finished(15, kSum), started(16, kBarrier, 12.3)})});
  expect(verdict, Finding::behind, {2},
         "rank 2 never reached all_reduce(1024 × f32, sum), call 17; it is in barrier(), call 16, since 12.3 s; "
         "ranks 0 and 1 wait in it, call 17, since 12.3 s");
  EXPECT_EQ(verdict.call, 17U);
}

TEST(Diagnosis, TheFirstCallMissedIsNamedWhereOthersWentOn) {
  auto const ahead = [](int rank) {
    return dump(rank, 3, {finished(16, kBarrier), finished(17, kSum), started(18, kBarrier, 9)});
  };
  auto const verdict = only({ahead(0), ahead(1), dump(2, 3, {finished(16, kBarrier, 10)})});
  expect(
      verdict, Finding::behind, {2},
      "rank 2 never reached all_reduce(1024 × f32, sum), call 17; it has made no call since barrier(), call 16 ended "
      "10.0 s ago; ranks 0 and 1 wait in barrier(), call 18, since 9.0 s");
  EXPECT_EQ(verdict.call, 17U);
}

TEST(Diagnosis, RankBusyOutsideOfCommunication) {
  expect(
      only({dump(0, 2, {started(17, kSum, 9)}), dump(1, 2, {finished(16, kBarrier, 10)})}), Finding::behind, {1},
      "rank 1 never reached all_reduce(1024 × f32, sum), call 17; it has made no call since barrier(), call 16 ended "
      "10.0 s ago; rank 0 waits in it, call 17, since 9.0 s");
}

TEST(Diagnosis, RankThatNeverMadeACall) {
  auto const verdict =
      only({dump(0, 3, {}), dump(1, 3, {started(1, kBarrier, 5)}), dump(2, 3, {started(1, kBarrier, 4)})});
  EXPECT_EQ(verdict.finding, Finding::behind);
  EXPECT_EQ(verdict.culprits, std::vector{0});
  EXPECT_NE(verdict.sentence.find("rank 0 never reached barrier(), call 1; it has made no call yet"), std::string::npos)
      << verdict.sentence;
}

TEST(Diagnosis, StreamThatDoesNotGetToIt) {
  RecordedCall pending{.sequence = 17, .text = kSum, .state = State::enqueued, .enqueued_ns = kNow - 8 * kSecond};
  auto const verdict = only({dump(0, 2, {started(17, kSum, 7)}), dump(1, 2, {finished(16, kSum), pending})});
  EXPECT_EQ(verdict.culprits, std::vector{1});
  EXPECT_NE(
      verdict.sentence.find("it has enqueued all_reduce(1024 × f32, sum), call 17, but its stream has not started "
                            "it since 8.0 s"),
      std::string::npos)
      << verdict.sentence;
}

TEST(Diagnosis, SeveralRanksBehind) {
  std::vector<Dump> dumps{dump(0, 5, {started(17, kSum, 9)})};
  for (int rank = 1; rank < 5; ++rank) dumps.push_back(dump(rank, 5, {finished(16, kBarrier, 10)}));
  auto const verdict = only(dumps);
  EXPECT_EQ(verdict.culprits, (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(verdict.sentence.rfind("ranks 1 to 4 never reached", 0), 0U) << verdict.sentence;
}

TEST(Diagnosis, TheOneFurthestBehindIsTheCause) {
  auto const verdict = only({dump(0, 3, {started(17, kSum, 9)}), dump(1, 3, {started(16, kBarrier, 9)}),
                             dump(2, 3, {finished(15, kSum, 30)})});
  EXPECT_EQ(verdict.culprits, std::vector{2});
  EXPECT_EQ(verdict.call, 16U);
}

TEST(Diagnosis, WrongCall) {
  std::vector<Dump> dumps;
  for (int rank = 0; rank < 4; ++rank) {
    dumps.push_back(dump(rank, 4, {failed(8, rank == 1 ? "broadcast(8 × f32, root 0)" : kSum, 1, 1, "mismatch")}));
  }
  auto const verdict = only(dumps);
  expect(verdict, Finding::mismatch, {1},
         "rank 1 made broadcast(8 × f32, root 0) as call 8 where the others made all_reduce(1024 × f32, sum)");
  EXPECT_EQ(verdict.call, 8U);
}

TEST(Diagnosis, OfTwoRanksEitherMayBeWrong) {
  expect(only({dump(0, 2, {failed(8, kSum, 1, 1, "mismatch")}), dump(1, 2, {failed(8, kBarrier, 1, 1, "mismatch")})}),
         Finding::mismatch, {0, 1}, "rank 0 made all_reduce(1024 × f32, sum) as call 8 where rank 1 made barrier()");
}

TEST(Diagnosis, DifferentCallsThatHangAreAMismatchToo) {
  EXPECT_EQ(only({dump(0, 2, {started(8, kSum, 5)}), dump(1, 2, {started(8, kBarrier, 5)})}).finding,
            Finding::mismatch);
}

TEST(Diagnosis, AMismatchThatTheProgramGotOverIsHistory) {
  auto const calls = [](char const* made, RecordedCall last) {
    return std::vector{failed(8, made, 30, 30, "mismatch"), finished(9, kSum), std::move(last)};
  };
  EXPECT_EQ(
      only({dump(0, 2, calls(kSum, finished(10, kSum))), dump(1, 2, calls(kBarrier, finished(10, kSum)))}).finding,
      Finding::nothing);
  auto const verdict =
      only({dump(0, 2, calls(kSum, started(10, kSum, 5))), dump(1, 2, calls(kBarrier, finished(9, kSum)))});
  EXPECT_EQ(verdict.finding, Finding::behind);
  EXPECT_EQ(verdict.culprits, std::vector{1});
}

TEST(Diagnosis, NoDump) {
  expect(only({dump(0, 4, {started(17, kSum, 12.3)}), dump(1, 4, {started(17, kSum, 12.2)}),
               dump(2, 4, {started(17, kSum, 12.2)})}),
         Finding::missing_dump, {3},
         "no dump from rank 3: it died or was not started; ranks 0 to 2 wait in all_reduce(1024 × f32, sum), call 17, "
         "since 12.3 s");
  auto const verdict = only({dump(0, 3, {started(17, kSum, 12.3)}), dump(2, 3, {finished(15, kSum)})});
  EXPECT_EQ(verdict.culprits, std::vector{1});
  EXPECT_NE(std::string::npos, verdict.sentence.find("; rank 2 is behind as well: it has made no call since"))
      << verdict.sentence;
  auto const lonely = only({dump(1, 3, {finished(2, kSum)})});
  expect(lonely, Finding::missing_dump, {0, 2}, "no dump from ranks 0 and 2: they died or were not started");
}

TEST(Diagnosis, NoDumpAndAFailure) {
  auto const verdict = only({dump(0, 2, {failed(17, kSum, 2, 1, "peer_lost", "rank 1 (pid 7) died")})});
  EXPECT_EQ(verdict.culprits, std::vector{1});
  EXPECT_NE(verdict.sentence.find("rank 1 (pid 7) died"), std::string::npos);
}

TEST(Diagnosis, NobodyIsLateForWhatWasAborted) {
  auto const verdict =
      only({dump(0, 2, {failed(17, kSum, 10, 9.5, "aborted")}), dump(1, 2, {failed(17, kSum, 9, 9, "aborted")})});
  EXPECT_EQ(verdict.finding, Finding::failed);
  EXPECT_TRUE(verdict.culprits.empty());
}

TEST(Diagnosis, CameAfterTheOthersGaveUp) {
  auto const verdict =
      only({dump(0, 3, {failed(17, kSum, 10, 9.5, "timeout")}), dump(1, 3, {failed(17, kSum, 10, 9.5, "timeout")}),
            dump(2, 3, {failed(17, kSum, 2, 2, "timeout")})});
  expect(verdict, Finding::late, {2},
         "rank 2 came to all_reduce(1024 × f32, sum), call 17, 7.5 s after the others had given it up: what the error "
         "says");
}

TEST(Diagnosis, CallsAfterAFatalFailureDoNotCount) {
  auto const gave_up = [](int rank) {
    return dump(rank, 3, {failed(17, kSum, 10, 9.5, "timeout"), failed(18, kBarrier, 9, 9, "timeout")});
  };
  EXPECT_EQ(only({gave_up(0), gave_up(1), dump(2, 3, {finished(16, kSum, 11)})}).culprits, std::vector{2});
  EXPECT_EQ(only({gave_up(0), gave_up(1), dump(2, 3, {failed(17, kSum, 2, 2, "timeout")})}).finding, Finding::late);
}

TEST(Diagnosis, AbortedByTheApplication) {
  auto const verdict = only({dump(0, 2, {failed(17, kSum, 3, 2, "aborted", "stop")}),
                             dump(1, 2, {failed(17, kSum, 3, 2, "aborted", "stop")})});
  expect(verdict, Finding::failed, {}, "ranks 0 and 1 failed in all_reduce(1024 × f32, sum), call 17: stop");
}

TEST(Diagnosis, AHealthyJobIsNotAtTheSameCallEverywhere) {
  auto const verdict = only({dump(0, 2, {started(5000, kSum, 0.003)}), dump(1, 2, {finished(4999, kSum, 0.004)})});
  expect(verdict, Finding::nothing, {},
         "ranks are between call 4999 and call 5000, and none has waited for 1.0 s: nothing is missing");
  // Rank 1 wrote long before rank 0 came to where it waits now.
  auto early = dump(1, 2, {finished(10, kSum)});
  early.written_ns -= 60 * kSecond;
  EXPECT_EQ(only({dump(0, 2, {started(5000, kSum, 30)}), early}).finding, Finding::nothing);
}

TEST(Diagnosis, LeastWaitDecidesWhatCounts) {
  std::vector const dumps{dump(0, 2, {started(2, kSum, 0.5)}), dump(1, 2, {finished(1, kSum)})};
  EXPECT_EQ(only(dumps).finding, Finding::nothing);
  EXPECT_EQ(only(dumps, {.least_wait = std::chrono::milliseconds(400)}).finding, Finding::behind);
}

TEST(Diagnosis, EverybodyIsThere) {
  expect(only({dump(0, 2, {started(17, kSum, 20)}), dump(1, 2, {started(17, kSum, 18)})}), Finding::nothing, {},
         "all ranks have reached all_reduce(1024 × f32, sum), call 17: nobody is missing");
}

TEST(Diagnosis, TwoCommunicatorsThatWaitForEachOther) {
  auto const verdicts =
      diagnose({dump(0, 2, {started(5, kSum, 9)}, "a"), dump(1, 2, {finished(4, kSum)}, "a"),
                dump(0, 2, {finished(2, kBarrier)}, "b"), dump(1, 2, {started(3, kBarrier, 9)}, "b")});
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].culprits, std::vector{1});
  EXPECT_NE(verdicts[0].sentence.find("it is in barrier(), call 3 of communicator b, since 9.0 s"), std::string::npos)
      << verdicts[0].sentence;
  EXPECT_EQ(verdicts[1].culprits, std::vector{0});
  EXPECT_NE(verdicts[1].sentence.find("call 5 of communicator a"), std::string::npos);
}

TEST(Diagnosis, RanksThatWaitToMakeACommunicator) {
  std::vector<Dump> dumps;
  for (int rank = 0; rank < 4; ++rank) dumps.push_back(dump(rank, 4, {finished(1, kBarrier)}));
  auto const begin = [&](int of, int rank, double ago) {
    dumps[static_cast<std::size_t>(of)].begun = {{"pairs", rank, 3, kNow - static_cast<std::int64_t>(ago * kSecond)}};
  };
  begin(1, 0, 4);
  EXPECT_EQ(diagnose(dumps, {.least_wait = std::chrono::seconds(5)}).size(), 1U) << "they have not waited for long";
  begin(2, 1, 7);
  auto const verdicts = diagnose(dumps, {.least_wait = std::chrono::seconds(5)});
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].finding, Finding::nothing);
  EXPECT_EQ(verdicts[1].name, "pairs");
  EXPECT_EQ(verdicts[1].size, 3);
  expect(verdicts[1], Finding::unmade, {2}, "rank 2 never came to make it, ranks 0 and 1 wait since 7.0 s");
  begin(3, 2, 1);
  EXPECT_EQ(diagnose(dumps).size(), 1U) << "all have come";
  dumps.push_back(dump(1, 4, {finished(1, kBarrier)}));  // this process wrote again, and waits no more
  dumps.back().written_ns += kSecond;
  expect(diagnose(dumps).back(), Finding::unmade, {0}, "rank 0 never came to make it, ranks 1 and 2 wait since 7.0 s");
}

TEST(Diagnosis, RanksOfOneProcessAreKeptApart) {
  auto const verdicts =
      diagnose({dump(0, 2, {started(5, kSum, 9)}, "a", 7), dump(1, 2, {finished(4, kSum)}, "a", 7),
                dump(0, 2, {started(3, kBarrier, 9)}, "b", 7), dump(1, 2, {finished(2, kBarrier)}, "b", 7)});
  EXPECT_EQ(verdicts[0].sentence.find("communicator b"), std::string::npos) << verdicts[0].sentence;
}

TEST(Diagnosis, ContradictionsAreRefused) {
  auto const refused = [](std::vector<Dump> const& dumps, std::string const& word) {
    try {
      (void)diagnose(dumps);
      ADD_FAILURE() << word;
    } catch (BadInput const& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused({}, "no dumps");
  refused({dump(0, 2, {}), dump(1, 3, {})}, "size");
  refused({dump(0, 2, {}), dump(0, 2, {}, "c0ffee", 999)}, "different processes");
  refused({dump(0, 2, {}, "a", 1), dump(1, 2, {}, "a", 2), dump(0, 2, {}, "b", 3), dump(1, 2, {}, "b", 4)},
          "different jobs");
}

TEST(Diagnosis, HalvesOfOneJobAreConnectedThroughItsWorld) {
  auto const one = finished(1, kSum);
  EXPECT_EQ(diagnose({dump(0, 1, {one}, "left", 1), dump(0, 1, {one}, "right", 2), dump(0, 2, {one}, "world", 1),
                      dump(1, 2, {one}, "world", 2)})
                .size(),
            3U);
}

TEST(Diagnosis, OfTwoDumpsOfARankTheNewerCounts) {
  auto old = dump(1, 2, {finished(3, kSum)});
  old.written_ns -= kSecond;
  auto const verdict = only({dump(0, 2, {finished(4, kSum)}), dump(1, 2, {finished(4, kSum)}), old});
  EXPECT_EQ(verdict.sentence, "all ranks finished call 4: nothing is missing");
}

/// Whatever the number of ranks and their order in the command line: the rank made to lag, and no other, is named.
TEST(Diagnosis, PropertyTheLaggardIsFound) {
  auto const seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    int const size = 2 + static_cast<int>(random() % 15);
    int const laggard = static_cast<int>(random() % static_cast<unsigned>(size));
    auto const at = 2 + random() % 100;
    std::vector<Dump> dumps;
    for (int rank = 0; rank < size; ++rank) {
      std::vector<RecordedCall> calls;
      for (auto sequence = at > 8 ? at - 8 : 1; sequence < at; ++sequence) calls.push_back(finished(sequence, kSum));
      if (rank != laggard) calls.push_back(started(at, kBarrier, 2 + static_cast<double>(random() % 50)));
      dumps.push_back(dump(rank, size, std::move(calls)));
    }
    std::shuffle(dumps.begin(), dumps.end(), random);
    auto const verdict = only(dumps);
    EXPECT_EQ(verdict.finding, Finding::behind);
    EXPECT_EQ(verdict.culprits, std::vector{laggard});
    EXPECT_EQ(verdict.call, at);
  }
}

}  // namespace
}  // namespace weft::doctor
