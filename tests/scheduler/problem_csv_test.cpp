#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft_memory/problem_csv.hpp"

namespace weft::test {
namespace {

using memory_tool::Problem;

Problem read(std::string const& text) {
  std::istringstream in(text);
  return memory_tool::read_problem(in, "table.csv");
}

void expect_refused(std::string const& text, std::string const& message) {
  try {
    static_cast<void>(read(text));
    ADD_FAILURE() << "nothing was thrown about: " << message;
  } catch (std::runtime_error const& error) {
    EXPECT_EQ(std::string(error.what()).rfind("table.csv:" + message, 0), 0U) << error.what();
  }
}

TEST(ProblemCsv, ReadsColumnsInAnyOrder) {
  Problem const problem = read("size,id,upper,lower,alignment,gaps\n4,b1,9,3,2,5-6 7-8@1:3\n6,b2,10,-4,1,\n");
  ASSERT_EQ(problem.buffers.size(), 2U);
  PlannedBuffer const& first = problem.buffers[0];
  EXPECT_EQ(first.name, "b1");
  EXPECT_EQ(first.life.begin, 3);
  EXPECT_EQ(first.life.end, 9);
  EXPECT_EQ(first.bytes, 4);
  EXPECT_EQ(first.alignment, 2);
  ASSERT_EQ(first.gaps.size(), 2U);
  EXPECT_EQ(first.gaps[0].when.begin, 5);
  EXPECT_EQ(first.gaps[0].when.end, 6);
  EXPECT_EQ(first.gaps[0].kept_end, 0);
  EXPECT_EQ(first.gaps[1].kept_begin, 1);
  EXPECT_EQ(first.gaps[1].kept_end, 3);
  EXPECT_EQ(problem.buffers[1].life.begin, -4);
  EXPECT_TRUE(problem.buffers[1].gaps.empty());
}

TEST(ProblemCsv, AnEndIsTheLastMomentAndUpperTheOneAfter) {
  Problem const upper = read("id,lower,upper,size\nb,0,3,4\n");
  EXPECT_EQ(upper.buffers[0].life.end, 3);
  Problem const end = read("buffer_id,start,end,size,gaps\nb,0,2,4,-1-0\n");
  EXPECT_EQ(end.buffers[0].life.begin, 0);
  EXPECT_EQ(end.buffers[0].life.end, 3);
  EXPECT_EQ(end.buffers[0].gaps[0].when.begin, -1);
  EXPECT_EQ(end.buffers[0].gaps[0].when.end, 1);
  EXPECT_EQ(read("buffer,begin,upper,size\r\nb,1,2,4\r\n\r\n").buffers[0].life.begin, 1);
}

TEST(ProblemCsv, WritesTheTableWithOffsets) {
  std::ostringstream out;
  std::vector<std::int64_t> const offsets{8, 0};
  memory_tool::write_solution(out, read("id,start,end,size\nb1,0,2,4\nb2,0,2,8\n"), offsets);
  EXPECT_EQ(out.str(), "id,start,end,size,offset\nb1,0,2,4,8\nb2,0,2,8,0\n");
  out.str("");
  memory_tool::write_solution(out, read("offset,id,lower,upper,size\n77,b1,0,2,4\n,b2,0,2,8\n"), offsets);
  EXPECT_EQ(out.str(), "offset,id,lower,upper,size\n8,b1,0,2,4\n0,b2,0,2,8\n");
}

TEST(ProblemCsv, RefusesWithTheLine) {
  expect_refused("", "0: empty");
  expect_refused("id,lower,size\n", "1: no column upper among id, lower, size");
  expect_refused("id,lower,upper,size,id\n", "1: column id is there twice");
  expect_refused("id,lower,start,upper,size\n", "1: column lower is there twice");
  expect_refused("id,lower,upper,size\na,0,1,4\nb,0,1\n", "3: 3 fields for 4 columns");
  expect_refused("id,lower,upper,size\na,0,1,4k\n", "2: size is \"4k\", no whole number");
  expect_refused("id,lower,upper,size\na,,1,4\n", "2: lower is \"\", no whole number");
  expect_refused("id,lower,upper,size\na,0,99999999999999999999,4\n", "2: upper is \"99999999999999999999\"");
  expect_refused("id,lower,end,size\na,0,9223372036854775807,4\n", "2: end 9223372036854775807 is too late");
  expect_refused("id,lower,upper,size,gaps\na,0,9,4,5\n", "2: gap \"5\" is not like 5-8");
  expect_refused("id,lower,upper,size,gaps\na,0,9,4,5-6@7\n", "2: gap \"5-6@7\" is not like 5-8");
  expect_refused("id,lower,upper,size,gaps\na,0,9,4,5-x\n", "2: a gap's end is \"x\"");
  expect_refused("id,lower,upper,size\na,0,1,4\n\nb,0,1,4\n", "4: a row after an empty line");
}

}  // namespace
}  // namespace weft::test
