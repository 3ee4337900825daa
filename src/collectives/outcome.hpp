#pragma once

#include <optional>
#include <span>

#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft {

/// How one rank's part of something collective went, in bytes that ranks can exchange.
struct Outcome {
  ErrorCode code = ErrorCode::system;
  bool failed = false;
  char why[240] = {};

  [[nodiscard]] static Outcome of(Error const& error) noexcept;
};

/// Of outcomes by rank, `ranks` being their names (empty: 0, 1, …): a failure, or nothing where all succeeded. A cause
/// rather than that somebody waited for it in vain; the loss of a rank before all.
[[nodiscard]] std::optional<Error> first_failure(std::span<Outcome const> all, std::span<int const> ranks = {});

/// Collective: the same of all ranks' outcomes.
[[nodiscard]] std::optional<Error> first_failure(Bootstrap& bootstrap, Outcome const& mine);

/// Collective: throws that failure on every rank.
inline void agree(Bootstrap& bootstrap, Outcome const& mine) {
  if (auto const failure = first_failure(bootstrap, mine)) throw *failure;
}

}  // namespace weft
