#include "scheduler/graph/strided_group.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "weft/error.hpp"

namespace weft {

namespace {

constexpr int kMostRanks = 1 << 24;

std::vector<std::vector<int>> sets_of(StridedSets const& sets) {
  std::vector<std::vector<int>> all;
  for (int block = 0; block < sets.ranks; block += sets.size * sets.stride) {
    for (int first = block; first < block + sets.stride; ++first) {
      std::vector<int>& set = all.emplace_back();
      for (int i = 0; i < sets.size; ++i) set.push_back(first + i * sets.stride);
    }
  }
  return all;
}

}  // namespace

OpGroup strided_group(std::string name, StridedSets const& sets) {
  auto const [ranks, size, stride] = sets;
  if (ranks < 1 || ranks > kMostRanks || size < 1 || stride < 1 || size > ranks || stride > ranks / size ||
      ranks % (size * stride) != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("group {}: {} ranks are no sets of {} with {} between them", name, ranks, size, stride));
  }
  return {.name = std::move(name), .sets = sets_of(sets)};
}

std::optional<StridedSets> strided_sets(OpGroup const& group) {
  if (group.sets.empty() || group.sets.front().empty()) return std::nullopt;
  auto const& first = group.sets.front();
  StridedSets sets;
  sets.size = static_cast<int>(first.size());
  sets.ranks = static_cast<int>(first.size() * group.sets.size());
  sets.stride = first.size() > 1 ? first[1] - first[0] : 1;
  if (sets.stride < 1 || sets.stride > sets.ranks / sets.size || sets.ranks % (sets.size * sets.stride) != 0) {
    return std::nullopt;
  }
  if (sets_of(sets) != group.sets) return std::nullopt;
  return sets;
}

}  // namespace weft
