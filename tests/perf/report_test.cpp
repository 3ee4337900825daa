// Layout of the tables, and the arithmetic behind their last lines.
#include "common/report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "common/results.hpp"

namespace {

using namespace weft::perf;  // NOLINT(google-build-using-namespace)

Line sample_line(double seconds) {
  Line line;
  line.bytes = 134217728;
  line.count = 33554432;
  line.op = "sum";
  line.out_of_place = Timing{seconds, 12.34, 12.34, 0.0};
  line.in_place = Timing{seconds, 1.0, 1.0, 3.0};
  return line;
}

std::string line_of(std::string const& text, int number) {
  std::size_t start = 0;
  for (int i = 0; i < number; ++i) start = text.find('\n', start) + 1;
  return text.substr(start, text.find('\n', start) - start);
}

TEST(Report, HasNcclTestsHeader) {
  auto const header = table_header({});
  EXPECT_EQ(line_of(header, 0), "#");
  EXPECT_EQ(line_of(header, 2),
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   "
            "busbw  #wrong ");
  EXPECT_EQ(line_of(header, 3),
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
            "(GB/s)         ");
}

TEST(Report, RowsArePrintfs) {
  char expected[256];
  auto const count = std::snprintf(expected, sizeof(expected), "%12li  %12li  %8s  %6s  %6s", 134217728L, 33554432L,
                                   "float", "sum", "    -1");
  std::snprintf(expected + count, sizeof(expected) - static_cast<std::size_t>(count),
                "  %7s  %6s  %6s  %6g  %7s  %6s  %6s  %6g\n", "1.50", "12.34", "12.34", 0.0, "1.50", "1.00", "1.00",
                3.0);
  EXPECT_EQ(table_line(sample_line(1.5e-6)), expected);
}

TEST(Report, ColumnsEndUnderTheirNames) {
  auto const names = line_of(table_header({}), 2);
  for (double const seconds : {1e-7, 1.5e-4, 0.0125, 12.5}) {
    auto const row = table_line(sample_line(seconds));
    auto const edge = names.find("time") + 4;
    EXPECT_NE(row[edge - 1], ' ') << row;
    EXPECT_EQ(row[edge], ' ') << row;
    EXPECT_EQ(row.size(), names.size()) << row;  // the names end in a blank, the row in a line end
  }
}

TEST(Report, NumbersLoseDecimalsBeforeTheyOutgrowTheirColumn) {
  EXPECT_EQ(number_text(1.234, 7), "1.23");
  EXPECT_EQ(number_text(12345.6, 7), "12345.6");
  EXPECT_EQ(number_text(123456.7, 7), "123457");
  EXPECT_EQ(number_text(99999.99, 7), "100000");
  EXPECT_EQ(number_text(123456789.0, 7), "1.2e+08");
  EXPECT_EQ(number_text(1234.5, 6), "1234.5");
  EXPECT_EQ(number_text(0, 6), "0.00");
}

TEST(Report, WrongElementsAreCountedInTheirColumn) {
  auto line = sample_line(1e-6);
  auto const row = table_line(line);
  EXPECT_EQ(row.substr(row.size() - 3), " 3\n");
  line.in_place->wrong.reset();
  auto const unchecked = table_line(line);
  EXPECT_EQ(unchecked.substr(unchecked.size() - 8), "    N/A\n");
}

TEST(Report, ExtraColumnsStandBehindTheThirteen) {
  auto line = sample_line(1e-6);
  auto const bare = table_line(line);
  line.timestamp = "2026-01-31 12:34:56";
  line.extras = {"1.000"};
  auto const row = table_line(line);
  EXPECT_EQ(row.substr(0, bare.size() - 1), bare.substr(0, bare.size() - 1));
  auto const names = line_of(table_header({false, true, {{"cost", "(us)"}}}), 2);
  EXPECT_EQ(names.size() + 1, row.size()) << names << '\n' << row;
  EXPECT_EQ(names.substr(names.size() - 4), "cost");
}

TEST(Report, ClosesAsNcclTestsDoes) {
  EXPECT_EQ(closing_text({.wrong = 0, .average_gbps = 1.5}),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.5 \n#\n");
  EXPECT_EQ(closing_text({.wrong = 3, .average_gbps = 1.5, .fast_enough = true}),
            "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 1.5 OK\n#\n");
  EXPECT_EQ(line_of(closing_text({.average_gbps = 1.5, .fast_enough = false}), 1),
            "# Avg bus bandwidth    : 1.5 FAILED");
}

TEST(Report, ATenthLessBandwidthIsEnough) {
  EXPECT_TRUE(is_fast_enough(9.5, 10));
  EXPECT_FALSE(is_fast_enough(8.9, 10));
}

TEST(Report, SaysHowManyLinesHadNoUndisturbedRound) {
  EXPECT_EQ(disturbed_text({.lines = 5, .disturbed = 2}),
            "# No undisturbed round for 2 of 5 lines: those figures are of the least disturbed\n");
  EXPECT_NE(disturbed_text({.lines = 5, .disturbed = 2, .has_wishes = true}).find("WEFT_PERF_WORK_US"),
            std::string::npos);
  EXPECT_EQ(disturbed_text({.lines = 5}), "");
}

TEST(Report, GeometricMeanLeavesOutWhatWasNotMeasured) {
  EXPECT_DOUBLE_EQ(geometric_mean({2, 8}), 4);
  EXPECT_DOUBLE_EQ(geometric_mean({2, 0, 8, std::numeric_limits<double>::infinity()}), 4);
  EXPECT_EQ(geometric_mean({}), 0);
}

TEST(Report, WhatDrownedInNoiseIsNoBandwidthOfNothing) {
  EXPECT_DOUBLE_EQ(average_bus_gbps({{1e-6, 4, 4, {}}, {0, 0, 0, {}}, {1e-6, 8, 8, {}}}), 6);
  EXPECT_EQ(average_bus_gbps({{0, 0, 0, {}}}), 0);
}

TEST(Report, ADifferenceLostInNoiseIsNoFigure) {
  EXPECT_EQ(us_text(-1e-9), "n/a");
  EXPECT_EQ(ratio_text(ratio(1e-6, -1e-9)), "n/a");
  EXPECT_EQ(ratio_text(ratio(3e-6, 1e-6)), "3.00x");
  EXPECT_EQ(us_text(1.5e-6), "1.500");
}

// What compare_peers.py and plot.py need to take figures of several launches together, and to name the peer.
TEST(Report, JsonLinesHoldThePeersLoopsWithoutCalls) {
  Options options;
  Detail detail;
  detail.peer_call = 3e-6;
  detail.peer_call_base = 1e-6;
  detail.peer_cost_base = 2e-6;
  auto const what = make_case("all_reduce");
  auto const line = json_line(*what, options, 2, {}, detail);
  EXPECT_DOUBLE_EQ(line["peer_call_base_us"], 1.0);
  EXPECT_DOUBLE_EQ(line["peer_cost_base_us"], 2.0);
  EXPECT_EQ(line["peer"], "mpi");
  options.compare_nccl = true;
  EXPECT_EQ(json_line(*what, options, 2, {}, detail)["peer"], "nccl");
  EXPECT_FALSE(json_line(*what, options, 2, {}, Detail{}).contains("peer"));
}

}  // namespace
