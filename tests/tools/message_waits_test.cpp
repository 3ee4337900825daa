#include "weft_doctor/message_waits.hpp"

#include <gtest/gtest.h>

#include "weft_doctor/diagnosis.hpp"

namespace weft::doctor {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 1'700'000'000 * kSecond;

RecordedMessage message(bool sends, int peer, std::uint64_t number, State state, double ago) {
  return {.text = (sends ? "send(7 × f32, to rank " : "recv(7 × f32, from rank ") + std::to_string(peer) + ")",
          .sends = sends,
          .peer = peer,
          .number = number,
          .state = state,
          .started_ns = kNow - static_cast<std::int64_t>(ago * kSecond),
          .finished_ns = state == State::started ? std::nullopt : std::optional(kNow - kSecond)};
}
RecordedMessage waiting_recv(int from, std::uint64_t number, double ago = 5) {
  return message(false, from, number, State::started, ago);
}
RecordedMessage waiting_send(int to, std::uint64_t number, double ago = 5) {
  return message(true, to, number, State::started, ago);
}

RecordedCall call(std::uint64_t sequence, State state, double ago) {
  auto const when = kNow - static_cast<std::int64_t>(ago * kSecond);
  return {.sequence = sequence, .text = "barrier()", .state = state, .started_ns = when, .finished_ns = when};
}

Dump dump(int rank, std::vector<RecordedMessage> messages, std::vector<RecordedCall> calls = {}) {
  return {.file = "rank" + std::to_string(rank) + ".json",
          .communicator = "c0ffee",
          .rank = rank,
          .size = 3,
          .pid = 100 + rank,
          .host = "node1",
          .written_ns = kNow,
          .calls = std::move(calls),
          .messages = std::move(messages)};
}

void expect(std::vector<Dump> const& dumps, Finding finding, std::vector<int> const& culprits,
            std::string const& sentence) {
  auto const verdicts = diagnose(dumps);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_STREQ(to_string(verdicts[0].finding), to_string(finding));
  EXPECT_EQ(verdicts[0].culprits, culprits);
  EXPECT_EQ(verdicts[0].sentence, sentence);
}

TEST(MessageWaits, AMessageThatWasNeverSent) {
  expect(
      {dump(0, {}, {call(1, State::started, 4)}), dump(1, {waiting_recv(0, 3)}, {}), dump(2, {}, {})},
      Finding::unanswered, {0},
      "rank 0 never sent message 3 to rank 1; it is in barrier(), call 1, since 4.0 s; rank 1 waits in recv(7 × f32, "
      "from rank 0), message 3, since 5.0 s");
}

TEST(MessageWaits, AMessageThatWasNeverReceived) {
  expect(
      {dump(0, {waiting_send(2, 1)}), dump(1, {}), dump(2, {}, {call(7, State::finished, 9)})}, Finding::unanswered,
      {2},
      "rank 2 never received message 1 from rank 0; it has made no call since barrier(), call 7 ended 9.0 s ago; rank "
      "0 waits in send(7 × f32, to rank 2), message 1, since 5.0 s");
}

TEST(MessageWaits, TheEndOfAChainIsToBlame) {
  expect({dump(0, {waiting_recv(1, 1)}), dump(1, {waiting_recv(2, 1)}), dump(2, {})}, Finding::unanswered, {2},
         "rank 2 never sent message 1 to rank 1; it has made no call yet; rank 1 waits in recv(7 × f32, from rank 2), "
         "message 1, since 5.0 s; rank 0 waits in recv(7 × f32, from rank 1), message 1, since 5.0 s");
}

TEST(MessageWaits, ACircle) {
  // Rank 0 only waits for the circle of the others.
  expect(
      {dump(0, {waiting_recv(1, 1)}), dump(1, {waiting_recv(2, 4)}), dump(2, {waiting_recv(1, 2)})},
      Finding::unanswered, {1, 2},
      "ranks 1 and 2 wait for one another; rank 2 waits in recv(7 × f32, from rank 1), message 2, since 5.0 s; rank 1 "
      "waits in recv(7 × f32, from rank 2), message 4, since 5.0 s");
}

TEST(MessageWaits, BothSidesAreThere) {
  auto const verdicts = diagnose({dump(0, {waiting_send(1, 3)}), dump(1, {waiting_recv(0, 3)}), dump(2, {})});
  EXPECT_EQ(verdicts[0].finding, Finding::nothing);
}

TEST(MessageWaits, OfWhatTheRecorderForgotTheNumbersTell) {
  // Rank 0 has sent message 300; the record of 3 was overwritten.
  auto const sent = message(true, 1, 300, State::finished, 2);
  auto const verdicts = diagnose({dump(0, {sent}), dump(1, {waiting_recv(0, 3)}), dump(2, {})});
  EXPECT_EQ(verdicts[0].finding, Finding::nothing);
}

TEST(MessageWaits, ShortOnesAreOrdinary) {
  auto const verdicts = diagnose({dump(0, {}), dump(1, {waiting_recv(0, 3, 0.5)}), dump(2, {})});
  EXPECT_EQ(verdicts[0].finding, Finding::nothing);
}

TEST(MessageWaits, ThePeersDumpIsOlderThanTheWait) {
  auto old = dump(0, {});
  old.written_ns = kNow - 6 * kSecond;
  auto const verdicts = diagnose({old, dump(1, {waiting_recv(0, 3)}), dump(2, {})});
  EXPECT_EQ(verdicts[0].finding, Finding::nothing);
}

TEST(MessageWaits, GivenUp) {
  auto late = message(false, 0, 1, State::failed, 4);
  late.error_code = "timeout";
  expect(
      {dump(0, {}), dump(1, {late}), dump(2, {})}, Finding::unanswered, {0},
      "rank 0 never sent message 1 to rank 1; it has made no call yet; rank 1 gave up in recv(7 × f32, from rank 0), "
      "message 1, after 3.0 s");
}

TEST(MessageWaits, FromAnyRank) {
  auto any = waiting_recv(RecordedMessage::kAnyRank, 0);
  any.text = "recv(7 × f32, from any rank, tag 3)";
  any.tag = 3;
  std::string const waits = "rank 0 waits in recv(7 × f32, from any rank, tag 3), since 5.0 s";
  expect({dump(0, {any}), dump(1, {}), dump(2, {})}, Finding::unanswered, {1, 2},
         "ranks 1 and 2 sent rank 0 no message with tag 3; " + waits);
  expect({dump(0, {any}), dump(1, {waiting_recv(0, 1)}), dump(2, {})}, Finding::unanswered, {1, 2},
         "ranks 1 and 2 sent rank 0 no message with tag 3; " + waits +
             "; rank 1 waits in recv(7 × f32, from rank 0), message 1, since 5.0 s");
  // Somebody sends it; or a server waits while others are at odds.
  auto sent = waiting_send(0, 1);
  sent.tag = 3;
  EXPECT_EQ(diagnose({dump(0, {any}), dump(1, {sent}), dump(2, {})})[0].finding, Finding::nothing);
  auto const behind = diagnose(
      {dump(0, {any}, {call(1, State::started, 4)}), dump(1, {}, {call(1, State::started, 4)}), dump(2, {}, {})});
  EXPECT_EQ(behind[0].culprits, std::vector<int>{2}) << behind[0].sentence;
}

TEST(MessageWaits, TagsAreCountedByThemselves) {
  auto waits = waiting_recv(0, 2);
  waits.tag = 1;
  auto sent = message(true, 1, 5, State::finished, 2);
  sent.tag = 0;
  EXPECT_EQ(diagnose({dump(0, {sent}), dump(1, {waits}), dump(2, {})})[0].finding, Finding::unanswered);
  sent.tag = 1;
  EXPECT_EQ(diagnose({dump(0, {sent}), dump(1, {waits}), dump(2, {})})[0].finding, Finding::nothing);
}

TEST(MessageWaits, ForARankWithoutADump) {
  expect(
      {dump(1, {waiting_recv(0, 3)}), dump(2, {})}, Finding::missing_dump, {0},
      "no dump from rank 0: it died or was not started; rank 1 waits in recv(7 × f32, from rank 0), message 3, since "
      "5.0 s");
}

}  // namespace
}  // namespace weft::doctor
