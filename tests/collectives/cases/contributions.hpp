#pragma once

#include <cstddef>
#include <vector>

#include "collectives/cases/random_case.hpp"

namespace weft::test {

/// What ranks send in a case: every rank can make every rank's.
class Contributions {
 public:
  explicit Contributions(Case const& one);

  /// Elements [from, from + count) of `rank`'s send view.
  void write(int rank, std::size_t from, std::size_t count, std::byte* to) const;
  [[nodiscard]] std::vector<std::byte> read(int rank, std::size_t from, std::size_t count) const;

 private:
  std::uint64_t seed_;
  std::size_t unit_;  // bytes drawn together: an element, or a word of a user's
  std::size_t units_per_element_;
  std::vector<std::byte> choices_;  // of units
};

}  // namespace weft::test
