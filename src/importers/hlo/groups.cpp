#include "importers/hlo/groups.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "importers/hlo/attributes.hpp"
#include "importers/hlo/cursor.hpp"
#include "importers/hlo/opcodes.hpp"

namespace weft::hlo {
namespace {

/// Ranks that send to one another, directly or through others, are one set. Where that gives sets of different sizes,
/// all are in one.
std::vector<std::vector<int>> connected(std::vector<std::pair<int, int>> const& pairs) {
  int ranks = 0;
  for (auto const& [from, to] : pairs) ranks = std::max({ranks, from + 1, to + 1});
  std::vector<int> leader(static_cast<std::size_t>(ranks));
  std::iota(leader.begin(), leader.end(), 0);
  auto const find_leader = [&](int rank) {
    while (leader[static_cast<std::size_t>(rank)] != rank) {
      auto& above = leader[static_cast<std::size_t>(rank)];
      above = leader[static_cast<std::size_t>(above)];
      rank = above;
    }
    return rank;
  };
  std::vector<bool> named(leader.size());
  for (auto const& [from, to] : pairs) {
    named[static_cast<std::size_t>(from)] = named[static_cast<std::size_t>(to)] = true;
    int const a = find_leader(from);
    int const b = find_leader(to);
    leader[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
  }
  std::vector<std::vector<int>> by_leader(leader.size());
  std::vector<int> everyone;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!named[static_cast<std::size_t>(rank)]) continue;
    by_leader[static_cast<std::size_t>(find_leader(rank))].push_back(rank);
    everyone.push_back(rank);
  }
  std::erase_if(by_leader, [](auto const& set) { return set.empty(); });
  bool const alike = std::all_of(by_leader.begin(), by_leader.end(),
                                 [&](auto const& set) { return set.size() == by_leader.front().size(); });
  if (!alike) return {everyone};
  return by_leader;
}

std::string_view text_of(Instruction const& collective) {
  if (auto const pairs = find(collective, "source_target_pairs")) return *pairs;
  return find(collective, "replica_groups").value_or("");
}

}  // namespace

Groups::Groups(Module const& module) : module_(module) {
  for (std::string_view const name : {"num_partitions", "replica_count"}) {
    auto const text = find(module.attributes, name);
    if (!text) continue;
    Cursor cursor(module, static_cast<std::size_t>(text->data() - module.text.data()));
    auto const count = cursor.expect_integer(name);
    if (count < 1 || count > (1 << 17)) cursor.fail("a number of ranks that cannot be");
    ranks_ = static_cast<int>(std::max<std::int64_t>(ranks_, count));
    // Device ids count the partitions of all replicas.
    declared_ = static_cast<int>(std::min<std::int64_t>(std::max<std::int64_t>(declared_, 1) * count, 1 << 30));
  }
  std::vector<Instruction const*> collectives;
  for (auto const& computation : module.computations) {
    for (auto const& instruction : computation.instructions) {
      if (collective_of(instruction.opcode)) collectives.push_back(&instruction);
    }
  }
  ranks_ = std::max(ranks_, 1);
  for (auto const* const collective : collectives) {
    if (text_of(*collective).empty() || text_of(*collective) == "{}") continue;
    int named = 0;
    for (auto const& set : groups_[static_cast<std::size_t>(of(*collective))].sets) {
      named = std::max(named, *std::max_element(set.begin(), set.end()) + 1);
    }
    ranks_ = std::max(ranks_, named);
    if (declared_ > 0 && named > declared_) ++beyond_;
  }
}

GroupId Groups::of(Instruction const& collective) {
  auto const text = text_of(collective);
  auto const [at, is_new] = ids_.try_emplace(text, static_cast<GroupId>(groups_.size()));
  if (!is_new) return at->second;
  OpGroup group;
  if (find(collective, "source_target_pairs")) {
    group.sets = connected(source_target_pairs(module_, collective));
  } else {
    group.sets = replica_groups(module_, collective, ranks_);
  }
  if (group.sets.empty()) group.sets.push_back({0});
  group.name = text.empty() ? "all" : std::string(text.substr(0, 64));
  groups_.push_back(std::move(group));
  return at->second;
}

}  // namespace weft::hlo
