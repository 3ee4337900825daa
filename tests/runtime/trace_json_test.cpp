#include "runtime/trace_json.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "error_matchers.hpp"
#include "trace_intervals.hpp"

namespace weft {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

TimePoint at(std::int64_t ns) {
  return TimePoint(nanoseconds(ns));
}

std::vector<Trace::Span> random_spans(std::mt19937_64& random, std::int64_t origin) {
  std::vector<Trace::Span> spans;
  for (int i = 0; i < 40; ++i) {
    auto const start = origin + static_cast<std::int64_t>(random() % 10'000'000);
    auto const lane = random() % 2 == 0 ? Trace::Lane::compute : Trace::Lane::communication;
    spans.push_back({lane,
                     "span \"" + std::to_string(i) + "\" é\n",
                     {at(start), at(start + static_cast<std::int64_t>(random() % 900'000))},
                     random() % 3 * 1000});
  }
  return spans;
}

TEST(TraceJson, SpansSurviveEncoding) {
  std::mt19937_64 random(5);
  auto const spans = random_spans(random, 8'000'000'000'000'123);
  auto const decoded = decode_spans(encode_spans(spans));
  ASSERT_EQ(decoded.size(), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(decoded[i].lane, spans[i].lane);
    EXPECT_EQ(decoded[i].name, spans[i].name);
    EXPECT_EQ(decoded[i].interval.start, spans[i].interval.start);
    EXPECT_EQ(decoded[i].interval.end, spans[i].interval.end);
    EXPECT_EQ(decoded[i].bytes, spans[i].bytes);
  }
  EXPECT_TRUE(decode_spans(encode_spans({})).empty());
}

TEST(TraceJson, CutBytesAreAnError) {
  std::mt19937_64 random(6);
  auto bytes = encode_spans(random_spans(random, 0));
  bytes.resize(bytes.size() / 2);
  test::expect_error(ErrorCode::system, {"Trace::write"}, [&] { (void)decode_spans(bytes); });
}

TEST(TraceJson, EventsCarryTimesRelativeToTheEarliestOfAllRanks) {
  std::vector<std::vector<Trace::Span>> const ranks{
      {{Trace::Lane::compute, "forward", {at(5'000'000), at(6'000'001)}, 0}},
      {{Trace::Lane::communication, "bucket 0", {at(4'000'000), at(4'500'000)}, 4096}}};
  auto const trace = json::parse(chrome_trace(ranks));
  std::vector<json> events;
  for (auto const& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") events.push_back(event);
  }
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0], json::parse(R"({"ph": "X", "name": "forward", "cat": "compute", "pid": 0, "tid": 0,
                                       "ts": 1000.0, "dur": 1000.001})"));
  EXPECT_EQ(events[1], json::parse(R"({"ph": "X", "name": "bucket 0", "cat": "communication", "pid": 1, "tid": 1,
                                       "ts": 0.0, "dur": 500.0, "args": {"bytes": 4096}})"));
}

TEST(TraceJson, ProcessesAndThreadsAreNamed) {
  std::vector<std::vector<Trace::Span>> const ranks(3);
  std::set<std::string> names;
  auto const trace = json::parse(chrome_trace(ranks));
  for (auto const& event : trace.at("traceEvents")) {
    if (!event.at("args").contains("name")) continue;
    names.insert(event.at("name").get<std::string>() + ' ' + std::to_string(event.at("pid").get<int>()) + ' ' +
                 std::to_string(event.at("tid").get<int>()) + ' ' + event.at("args").at("name").get<std::string>());
  }
  EXPECT_EQ(names, (std::set<std::string>{
                       "process_name 0 0 rank 0", "process_name 1 0 rank 1", "process_name 2 0 rank 2",
                       "thread_name 0 0 compute", "thread_name 0 1 communication", "thread_name 1 0 compute",
                       "thread_name 1 1 communication", "thread_name 2 0 compute", "thread_name 2 1 communication"}));
}

TEST(TraceJson, ReaderComputesTheReportsHiddenPercent) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::vector<Trace::Span>> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.push_back(random_spans(random, 1'000'000'000'000'000 + rank * 77'777));
    auto const trace = json::parse(chrome_trace(ranks));
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<Interval> compute;
      std::vector<BucketTiming> buckets;
      for (auto const& span : ranks[static_cast<std::size_t>(rank)]) {
        if (span.lane == Trace::Lane::compute) {
          compute.push_back(span.interval);
        } else {
          buckets.push_back({.bytes = span.bytes,
                             .ready = span.interval.start,
                             .started = span.interval.start,
                             .finished = span.interval.end});
        }
      }
      auto const report = OverlapReport::build({at(0), at(1)}, compute, buckets);
      ASSERT_NEAR(test::hidden_percent_of(trace, rank), report.hidden_percent(), 1e-6);
    }
  }
}

TEST(TraceJson, ANameThatIsNoTextStillGivesAFile) {
  std::vector<std::vector<Trace::Span>> const ranks{{{Trace::Lane::compute, "\xff\xfe", {at(0), at(1)}, 0}}};
  EXPECT_TRUE(json::accept(chrome_trace(ranks)));
  EXPECT_EQ(decode_spans(encode_spans(ranks[0])).size(), 1U);
}

}  // namespace
}  // namespace weft
