#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "weft/error.hpp"
#include "weft/memory_plan.hpp"

namespace weft::test {
namespace {

void expect_refused(std::vector<PlannedBuffer> const& buffers, std::string const& part,
                    MemoryPlanOptions const& options = {}) {
  try {
    static_cast<void>(plan_memory(buffers, options));
    ADD_FAILURE() << "nothing was thrown about: " << part;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

/// A buffer that is well, second of two.
std::vector<PlannedBuffer> pair_with(PlannedBuffer const& second) {
  return {{.name = "first", .life = {0, 10}, .bytes = 8}, second};
}

TEST(MemoryPlanErrors, NameTheBuffer) {
  expect_refused(pair_with({.name = "x", .life = {5, 4}, .bytes = 8}), "buffer 1 (x): a life from 5 to 4 ends before");
  expect_refused(pair_with({.name = {}, .life = {0, 4}, .bytes = -8}), "buffer 1: -8 bytes");
  expect_refused(pair_with({.name = "x", .life = {0, 4}, .bytes = 8, .alignment = 0}), "an alignment of 0 bytes");
}

TEST(MemoryPlanErrors, GapsLieWithinLivesAndApart) {
  auto const with = [](std::vector<LifeGap> const& gaps) {
    return pair_with({.name = "x", .life = {0, 10}, .bytes = 8, .gaps = gaps});
  };
  expect_refused(with({{.when = {5, 4}}}), "a gap from 5 to 4 ends before it begins");
  expect_refused(with({{.when = {5, 11}}}), "the gap from 5 to 11 is not within its life, 0 to 10");
  expect_refused(with({{.when = {-1, 3}}}), "the gap from -1 to 3 is not within");
  expect_refused(with({{.when = {4, 6}}, {.when = {2, 5}}}), "the gap from 4 to 6 overlaps another");
  expect_refused(with({{.when = {4, 6}, .kept_begin = 2, .kept_end = 9}}), "keeps bytes 2 to 9 of 8");
  expect_refused(with({{.when = {4, 6}, .kept_begin = -2, .kept_end = 2}}), "keeps bytes -2 to 2");
  expect_refused(with({{.when = {4, 6}, .kept_begin = 3, .kept_end = 2}}), "keeps bytes 3 to 2");
}

TEST(MemoryPlanErrors, SumsStayWithin64Bits) {
  std::int64_t const most = std::numeric_limits<std::int64_t>::max();
  expect_refused(pair_with({.name = "x", .life = {0, 1}, .bytes = most}), "with those before it more than 2^62");
  expect_refused(pair_with({.name = "x", .life = {0, 1}, .bytes = 8, .alignment = most}), "more than 2^62");
  // Moments may be anywhere.
  std::vector<PlannedBuffer> const wide{
      {.name = "x", .life = {std::numeric_limits<std::int64_t>::min(), most}, .bytes = 8},
      {.name = "y", .life = {most - 1, most}, .bytes = 8}};
  EXPECT_EQ(plan_memory(wide).bytes, 16);
}

TEST(MemoryPlanErrors, ACapacityIsNotNegative) {
  expect_refused({}, "a capacity of -1 bytes", {.capacity = -1});
  EXPECT_EQ(plan_memory({}, {.capacity = 0}).bytes, 0);
}

}  // namespace
}  // namespace weft::test
