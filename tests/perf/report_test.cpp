// Layout of the tables, and the arithmetic behind their last lines.
#include "common/report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace {

using namespace weft::perf;  // NOLINT(google-build-using-namespace)

std::size_t line_length(std::string const& text, int line) {
  std::size_t start = 0;
  for (int i = 0; i < line; ++i) start = text.find('\n', start) + 1;
  return text.find('\n', start) - start;
}

Line sample_line(double seconds) {
  Line line;
  line.bytes = 134217728;
  line.count = 33554432;
  line.op = "sum";
  line.out_of_place = Timing{seconds, 12.34, 12.34, 0.0};
  line.in_place = Timing{seconds, 1.0, 1.0, 3.0};
  return line;
}

TEST(Report, ColumnsEndUnderTheirNames) {
  auto const header = table_header();
  for (double const seconds : {1e-7, 1.5e-4, 0.0125}) {
    auto const row = table_line(sample_line(seconds));
    // "time" ends where the time ends, "busbw" where the bandwidth ends: compare the right edges of the first half.
    auto const names = header.substr(header.find('\n') + 1);
    auto const edge = names.find("time") + 4;
    EXPECT_NE(row[edge - 1], ' ') << header << row;
    EXPECT_EQ(row[edge], ' ') << header << row;
  }
  EXPECT_GT(line_length(header, 1), 100U);
}

TEST(Report, TimesHaveNcclTestsPrecision) {
  EXPECT_NE(table_line(sample_line(1.234e-6)).find("   1.23  "), std::string::npos);
  EXPECT_NE(table_line(sample_line(123.46e-6)).find("  123.5  "), std::string::npos);
  EXPECT_NE(table_line(sample_line(12345.6e-6)).find("  12346  "), std::string::npos);
}

TEST(Report, WrongElementsAreCountedInTheirColumn) {
  auto const row = table_line(sample_line(1e-6));
  EXPECT_EQ(row.substr(row.size() - 3), " 3\n");
}

TEST(Report, GeometricMeanLeavesOutWhatWasNotMeasured) {
  EXPECT_DOUBLE_EQ(geometric_mean({2, 8}), 4);
  EXPECT_DOUBLE_EQ(geometric_mean({2, 0, 8, std::numeric_limits<double>::infinity()}), 4);
  EXPECT_EQ(geometric_mean({}), 0);
}

TEST(Report, RatiosArePeerOverWeft) {
  Detail detail;
  detail.bytes = 8;
  detail.call = 1e-6;
  detail.cost = 2e-6;
  detail.limit = 0.5e-6;
  detail.peer_call = 3e-6;
  detail.peer_cost = 2e-6;
  auto const text = detail_table({detail}, "mpi");
  EXPECT_NE(text.find("  3.00x"), std::string::npos) << text;
  EXPECT_NE(text.find("  1.00x"), std::string::npos) << text;
  EXPECT_NE(text.find("call 3.00, cost 1.00"), std::string::npos) << text;
  EXPECT_NE(text.find("call over limit: 2.00"), std::string::npos) << text;
}

TEST(Report, ADifferenceLostInNoiseIsNoFigure) {
  Detail detail;
  detail.bytes = 8;
  detail.call = -1e-9;
  detail.limit = 1e-7;
  EXPECT_NE(detail_table({detail}, "").find("n/a"), std::string::npos);
}

}  // namespace
