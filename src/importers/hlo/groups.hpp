#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "importers/hlo/module.hpp"
#include "weft/op_graph.hpp"

namespace weft::hlo {

/// The groups of a module's collectives, each once.
class Groups {
 public:
  /// Looks at all collectives. Where the module does not say how many ranks there are, the highest rank that any
  /// collective names tells.
  explicit Groups(Module const& module);

  /// How many collectives name a rank that the module, by its own count, does not have.
  [[nodiscard]] int beyond() const noexcept { return beyond_; }
  /// The number of ranks that the module declares; 0 where it declares none.
  [[nodiscard]] int declared_ranks() const noexcept { return declared_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::vector<OpGroup> const& all() const noexcept { return groups_; }
  /// The group of a collective. @throws Error{invalid_argument} with line and column where its groups do not fit.
  [[nodiscard]] GroupId of(Instruction const& collective);
  [[nodiscard]] OpGroup const& operator[](GroupId id) const { return groups_[static_cast<std::size_t>(id)]; }

 private:
  Module const& module_;
  int ranks_ = 0;
  int declared_ = 0;
  int beyond_ = 0;
  std::vector<OpGroup> groups_;
  std::unordered_map<std::string_view, GroupId> ids_;  ///< by the attribute's text
};

}  // namespace weft::hlo
