#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

namespace weft {

/// Names that are all different: each thing's own name, or `what` and its index where it has no name or an earlier
/// thing has the same one.
template <typename Named>
std::vector<std::string> unique_names(std::vector<Named> const& things, std::string const& what) {
  std::vector<std::string> names;
  names.reserve(things.size());
  std::unordered_set<std::string> taken;
  for (auto const& thing : things) taken.insert(thing.name);
  std::unordered_set<std::string> given;
  for (std::size_t i = 0; i < things.size(); ++i) {
    std::string name = things[i].name;
    if (name.empty() || given.count(name) > 0) {
      name = what + std::to_string(i);
      while (taken.count(name) > 0) name += '_';
      taken.insert(name);
    }
    given.insert(name);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace weft
