#pragma once

#include <optional>
#include <vector>

#include "collectives/cases/random_case.hpp"

namespace weft::test {

/// recv[at + i] = op over r in [first, last) of send_r[from + i], for i in [0, count).
struct Piece {
  std::size_t at = 0;
  std::size_t count = 0;
  int first = 0;
  int last = 1;
  std::size_t from = 0;
};

/// How a buffer is divided; `offsets` may be empty.
struct Division {
  Counts counts;
  Counts offsets;

  [[nodiscard]] Parts parts() const { return {counts, offsets}; }
  [[nodiscard]] std::size_t offset(int rank) const;
  [[nodiscard]] std::size_t count(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
  /// Elements that the buffer has at least.
  [[nodiscard]] std::size_t end() const;
};

/// What a case is for one rank: the sizes of its views and, straight from the definition of the operation, what the
/// call leaves in them.
struct Layout {
  std::size_t send = 0;           ///< elements
  std::size_t recv = 0;           ///< elements
  std::vector<Piece> pieces;      ///< of recv; the rest stays as it is
  std::optional<Division> sends;  ///< unequal parts of send
  std::optional<Division> recvs;  ///< unequal parts of recv
  /// In place: where recv begins in send, or, when `send_inside`, send in recv.
  std::optional<std::size_t> place;
  bool send_inside = false;
  bool spoils_send = false;  ///< in place: nobody says what the rest of send holds afterwards
};

[[nodiscard]] Layout layout_of(Case const& one, int rank);

}  // namespace weft::test
