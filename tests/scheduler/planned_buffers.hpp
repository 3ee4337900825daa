#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "weft/memory_plan.hpp"

namespace weft::test {

/// Which of a buffer's bytes nobody else may have at a moment; begin == end: none.
struct OwnBytes {
  std::int64_t begin;
  std::int64_t end;
};

inline OwnBytes own_bytes(PlannedBuffer const& buffer, std::int64_t moment) {
  if (moment < buffer.life.begin || moment >= buffer.life.end) return {0, 0};
  for (auto const& gap : buffer.gaps) {
    if (moment >= gap.when.begin && moment < gap.when.end) return {gap.kept_begin, gap.kept_end};
  }
  return {0, buffer.bytes};
}

/// Every moment at which something begins or ends.
inline std::vector<std::int64_t> moments_of(std::vector<PlannedBuffer> const& buffers) {
  std::vector<std::int64_t> moments;
  for (auto const& buffer : buffers) {
    moments.insert(moments.end(), {buffer.life.begin, buffer.life.end});
    for (auto const& gap : buffer.gaps) moments.insert(moments.end(), {gap.when.begin, gap.when.end});
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  return moments;
}

/// A plan's promises, looked at moment by moment.
inline void expect_legal(std::vector<PlannedBuffer> const& buffers, MemoryPlan const& plan) {
  ASSERT_EQ(plan.offsets.size(), buffers.size());
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_GE(plan.offsets[i], 0) << "buffer " << i;
    ASSERT_EQ(plan.offsets[i] % buffers[i].alignment, 0) << "buffer " << i;
    if (buffers[i].life.begin < buffers[i].life.end && buffers[i].bytes > 0) {
      bytes = std::max(bytes, plan.offsets[i] + buffers[i].bytes);
    }
  }
  std::int64_t most_live = 0;
  for (std::int64_t const moment : moments_of(buffers)) {
    std::vector<OwnBytes> taken;
    std::int64_t live = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      auto const [begin, end] = own_bytes(buffers[i], moment);
      if (begin < end) taken.push_back({plan.offsets[i] + begin, plan.offsets[i] + end});
      live += end - begin;
    }
    most_live = std::max(most_live, live);
    std::sort(taken.begin(), taken.end(), [](auto const& a, auto const& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < taken.size(); ++i) {
      ASSERT_LE(taken[i - 1].end, taken[i].begin) << "bytes shared at " << moment;
    }
  }
  EXPECT_EQ(plan.live_bytes, most_live);
  EXPECT_LE(plan.live_bytes, plan.least_bytes);
  EXPECT_LE(plan.least_bytes, plan.bytes);
  // Where a buffer's last bytes are its own in no moment, the plan counts them all the same.
  EXPECT_EQ(plan.bytes, bytes);
}

struct RandomBuffers {
  int count;
  int moments;
  int most_bytes;
  bool aligned = false;
  bool gaps = false;
};

inline std::vector<PlannedBuffer> random_buffers(RandomBuffers const& how, std::mt19937_64& random) {
  auto const number = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  std::vector<PlannedBuffer> buffers;
  for (int i = 0; i < how.count; ++i) {
    int const begin = number(0, how.moments - 1);
    int const end = number(begin + 1, how.moments);
    PlannedBuffer buffer{.name = {}, .life = {begin, end}, .bytes = number(1, how.most_bytes)};
    if (how.aligned) buffer.alignment = number(1, 4);
    if (how.gaps && end - begin >= 3 && number(0, 1) == 1) {
      int const from = number(begin + 1, end - 2);
      buffer.gaps.push_back({.when = {from, number(from + 1, end - 1)}});
    }
    buffers.push_back(buffer);
  }
  return buffers;
}

}  // namespace weft::test
