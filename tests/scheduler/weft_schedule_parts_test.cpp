#include <gtest/gtest.h>

#include "weft_schedule/outcome.hpp"

namespace weft::schedule_tool {
namespace {

TEST(CheckAgainstBound, RefusesPlansThatAreShorterThanAnyCanBe) {
  Schedule schedule{.policy = "weft", .makespan_s = 1, .bound = {.critical_path_s = 1}};
  EXPECT_NO_THROW(check_against_bound(schedule));
  schedule.makespan_s = 1 - 1e-12;
  EXPECT_NO_THROW(check_against_bound(schedule)) << "rounding";
  schedule.makespan_s = 1 - 1e-6;
  EXPECT_THROW(check_against_bound(schedule), InternalError);
  schedule.makespan_s = 1;
  schedule.bound.memory_s = 1.001;
  EXPECT_THROW(check_against_bound(schedule), InternalError);
}

}  // namespace
}  // namespace weft::schedule_tool
