#include "scheduler/memory/check_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/error.hpp"

namespace weft {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

[[noreturn]] void refuse(std::size_t index, PlannedBuffer const& buffer, std::string const& why) {
  auto const name = buffer.name.empty() ? std::string() : fmt::format(" ({})", buffer.name);
  throw Error(ErrorCode::invalid_argument, fmt::format("plan_memory: buffer {}{}: {}", index, name, why));
}

void check_gaps(std::size_t index, PlannedBuffer const& buffer) {
  std::vector<LifeGap> gaps = buffer.gaps;
  std::sort(gaps.begin(), gaps.end(), [](auto const& a, auto const& b) { return a.when.begin < b.when.begin; });
  std::int64_t free_from = buffer.life.begin;
  for (auto const& gap : gaps) {
    auto const [begin, end] = gap.when;
    if (end < begin) refuse(index, buffer, fmt::format("a gap from {} to {} ends before it begins", begin, end));
    if (begin < buffer.life.begin || end > buffer.life.end) {
      refuse(index, buffer,
             fmt::format("the gap from {} to {} is not within its life, {} to {}", begin, end, buffer.life.begin,
                         buffer.life.end));
    }
    if (begin < free_from) refuse(index, buffer, fmt::format("the gap from {} to {} overlaps another", begin, end));
    if (gap.kept_begin < 0 || gap.kept_end < gap.kept_begin || gap.kept_end > buffer.bytes) {
      refuse(index, buffer,
             fmt::format("the gap from {} to {} keeps bytes {} to {} of {}", begin, end, gap.kept_begin, gap.kept_end,
                         buffer.bytes));
    }
    free_from = end;
  }
}

}  // namespace

void check_buffers(std::span<PlannedBuffer const> buffers, MemoryPlanOptions const& options) {
  if (options.capacity && *options.capacity < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan_memory: a capacity of {} bytes", *options.capacity));
  }
  std::int64_t left = kMostBytes;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    PlannedBuffer const& buffer = buffers[i];
    if (buffer.life.end < buffer.life.begin) {
      refuse(i, buffer, fmt::format("a life from {} to {} ends before it begins", buffer.life.begin, buffer.life.end));
    }
    if (buffer.bytes < 0) refuse(i, buffer, fmt::format("{} bytes", buffer.bytes));
    if (buffer.alignment < 1) refuse(i, buffer, fmt::format("an alignment of {} bytes", buffer.alignment));
    check_gaps(i, buffer);
    // The most that the buffer can cost, as where all are stacked.
    if (buffer.alignment > left || buffer.bytes > left - buffer.alignment) {
      refuse(
          i, buffer,
          fmt::format("{} bytes aligned to {}: with those before it more than 2^62", buffer.bytes, buffer.alignment));
    }
    left -= buffer.bytes + buffer.alignment;
  }
}

}  // namespace weft
