#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft {

/// What a recorded collective says of the ranks that take part.
struct GroupFacts {
  std::string name{};           ///< torch's name of the process group: "0"
  std::vector<int> ranks{};     ///< if the trace lists them
  std::int64_t size = 0;        ///< 0: not told
  std::int64_t first_rank = 0;  ///< if ranks are not listed: the first one …
  std::int64_t stride = 1;      ///< … and how far they are apart
};

/// Turns torch's process groups into groups of a graph.
class ProcessGroups {
 public:
  /// Adds the groups of one of torch's lists: "pg_name", "ranks" (none: all), "pg_size" or "group_size". Entries that
  /// do not fit are left out.
  void add(nlohmann::json const& list);
  /// The number of all ranks, for traces whose lists do not say it.
  void set_world(std::int64_t size) { world_ = size; }

  /// @return kNone where nothing tells how many ranks take part.
  GroupId group_of(GroupFacts const& facts, OpGraph& graph);

 private:
  [[nodiscard]] std::vector<int> ranks_of(GroupFacts const& facts) const;

  std::map<std::string, std::vector<int>> listed_;
  std::map<std::vector<int>, GroupId> groups_;
  std::int64_t world_ = 0;
};

}  // namespace weft
