#include "importers/common/process_groups.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft {

namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

std::int64_t whole(nlohmann::json const& json, char const* key) {
  return json.contains(key) && json[key].is_number_integer() ? json[key].get<std::int64_t>() : 0;
}

std::vector<int> first_ranks(std::int64_t size) {
  std::vector<int> ranks(static_cast<std::size_t>(std::clamp<std::int64_t>(size, 0, kMostRanks)));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Whether these ranks can be a set of a group.
bool are_ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return !ranks.empty() && ranks.front() >= 0 && std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
}

}  // namespace

void ProcessGroups::add(nlohmann::json const& list) {
  if (!list.is_array()) return;
  for (auto const& entry : list) {
    if (!entry.is_object() || !entry.contains("pg_name") || !entry["pg_name"].is_string()) continue;
    std::vector<int> ranks;
    if (entry.contains("ranks") && entry["ranks"].is_array()) {
      for (auto const& rank : entry["ranks"]) {
        if (rank.is_number_integer()) ranks.push_back(rank.get<int>());
      }
    }
    if (ranks.empty()) ranks = first_ranks(std::max(whole(entry, "pg_size"), whole(entry, "group_size")));
    if (are_ranks(ranks)) listed_[entry["pg_name"].get<std::string>()] = std::move(ranks);
  }
}

std::vector<int> ProcessGroups::ranks_of(GroupFacts const& facts) const {
  if (!facts.ranks.empty()) return facts.ranks;
  if (auto const found = listed_.find(facts.name); found != listed_.end()) return found->second;
  if (facts.size > 0) {
    auto ranks = first_ranks(facts.size);
    bool const small = facts.size <= kMostRanks && facts.first_rank <= kMostRanks && facts.stride <= kMostRanks;
    if (!small || facts.first_rank < 0 || facts.stride < 1 ||
        facts.first_rank + facts.stride * facts.size > std::numeric_limits<int>::max()) {
      return ranks;
    }
    for (int& rank : ranks) rank = static_cast<int>(facts.first_rank + facts.stride * rank);
    return ranks;
  }
  // Without a name it is the only group that is listed, or that of all ranks.
  if (listed_.size() == 1) return listed_.begin()->second;
  return first_ranks(world_);
}

GroupId ProcessGroups::group_of(GroupFacts const& facts, OpGraph& graph) {
  auto const ranks = ranks_of(facts);
  if (!are_ranks(ranks)) return kNone;
  auto const [entry, is_new] = groups_.try_emplace(ranks, kNone);
  if (is_new) {
    entry->second = graph.add(OpGroup{.name = "group" + std::to_string(groups_.size() - 1), .sets = {ranks}});
  }
  return entry->second;
}

}  // namespace weft
