#include "weft_doctor/dump.hpp"

#include <gtest/gtest.h>

#include "weft_doctor/words.hpp"

namespace weft::doctor {
namespace {

constexpr char const* kWhole =
    R"_({"weft_flight": 1, "communicator": "c0ffee", "rank": 1, "size": 2, "pid": 7, "host": "node1", "written_ns": 100,
"calls": [
{"sequence": 9, "call": "barrier()", "state": "failed", "enqueued_ns": null, "started_ns": 90, "finished_ns": 95,
 "error": {"code": "timeout", "text": "rank 0 did not come"}},
{"sequence": 8, "call": "barrier()", "state": "finished", "enqueued_ns": 70, "started_ns": 80, "finished_ns": 85}
]})_";

TEST(ParseDump, ReadsEveryFieldAndSortsCalls) {
  auto const dump = parse_dump("a.json", kWhole);
  EXPECT_EQ(dump.communicator, "c0ffee");
  EXPECT_EQ(dump.rank, 1);
  EXPECT_EQ(dump.size, 2);
  EXPECT_EQ(dump.pid, 7);
  ASSERT_EQ(dump.calls.size(), 2U);
  EXPECT_EQ(dump.calls[0].sequence, 8U);
  EXPECT_EQ(dump.calls[0].enqueued_ns, 70);
  EXPECT_EQ(dump.calls[1].state, State::failed);
  EXPECT_EQ(dump.calls[1].enqueued_ns, std::nullopt);
  EXPECT_EQ(dump.calls[1].error_code, "timeout");
}

TEST(ParseDump, ReadsMessages) {
  std::string text = kWhole;
  text.back() = ',';
  text += R"_("name": "pipeline", "messages": [{"message": "recv(7 × f32, from rank 0)", "operation": "recv", "peer": 0,
"number": 3, "state": "failed", "started_ns": 5, "finished_ns": 9, "error": {"code": "timeout", "text": "late"}}]})_";
  auto const dump = parse_dump("a.json", text);
  EXPECT_EQ(dump.name, "pipeline");
  ASSERT_EQ(dump.messages.size(), 1U);
  EXPECT_FALSE(dump.messages[0].sends);
  EXPECT_EQ(dump.messages[0].number, 3U);
  EXPECT_EQ(dump.messages[0].error_code, "timeout");
  EXPECT_THROW((void)parse_dump("a.json", text.replace(text.find("\"peer\": 0"), 9, "\"peer\": 2")), BadInput);
}

TEST(ParseDump, RefusesEverythingElseInOneLineWithTheFile) {
  std::string const whole = kWhole;
  auto const changed = [&](std::string const& from, std::string const& to) {
    auto text = whole;
    return text.replace(text.find(from), from.size(), to);
  };
  for (auto const& text :
       {std::string(), std::string("\n \n"), std::string("garbage"), std::string("{}"), std::string("[1, 2]"),
        std::string("\0\1\2", 3), whole.substr(0, whole.size() / 2),
        changed("\"weft_flight\": 1", "\"weft_flight\": 99"), changed("\"rank\": 1", "\"rank\": 2"),
        changed("\"size\": 2", "\"size\": 1000000000000"), changed("\"size\": 2", "\"size\": 4294967298"),
        changed("\"size\": 2", "\"size\": 1e300"), changed("\"rank\": 1", "\"rank\": 18446744073709551615"),
        changed("\"rank\": 1", "\"rank\": \"one\""), changed("finished\"", "done\""),
        changed("\"sequence\": 9,", "")}) {
    try {
      (void)parse_dump("a.json", text);
      ADD_FAILURE() << text;
    } catch (BadInput const& error) {
      std::string const what = error.what();
      EXPECT_EQ(what.rfind("a.json is ", 0), 0U) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
}

TEST(Words, Ranks) {
  EXPECT_EQ(name_ranks({2}), "rank 2");
  EXPECT_EQ(name_ranks({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(name_ranks({0, 1, 2}), "ranks 0 to 2");
  EXPECT_EQ(name_ranks({0, 1, 4, 5, 6, 9}), "ranks 0, 1, 4 to 6 and 9");
}

TEST(Words, Durations) {
  EXPECT_EQ(name_duration(12'340'000'000), "12.3 s");
  EXPECT_EQ(name_duration(45'000'000), "45 ms");
  EXPECT_EQ(name_duration(-5), "0 ms");
}

}  // namespace
}  // namespace weft::doctor
