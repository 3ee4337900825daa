#pragma once

#include <optional>
#include <span>

#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft {

/// How one rank's part of a collective step went, in bytes that ranks can exchange.
struct Outcome {
  ErrorCode code = ErrorCode::system;
  bool failed = false;
  char why[240] = {};

  [[nodiscard]] static Outcome of(Error const& error) noexcept;
};

/// The failure among these outcomes that says most, or nothing where all succeeded: the loss of a rank before other
/// causes, those before aborts, and timeouts last, since a rank that only waited knows no cause. The error names the
/// rank: its entry in `ranks`, or its index where that is empty.
[[nodiscard]] std::optional<Error> first_failure(std::span<Outcome const> all, std::span<int const> ranks = {});

/// Collective: exchanges the outcomes of all ranks, and returns the same failure on every rank.
[[nodiscard]] std::optional<Error> first_failure(Bootstrap& bootstrap, Outcome const& mine);

/// Collective: throws that failure, if there is one, on every rank.
inline void agree(Bootstrap& bootstrap, Outcome const& mine) {
  if (auto const failure = first_failure(bootstrap, mine)) throw *failure;
}

}  // namespace weft
