#include "collectives/outcome.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <span>

namespace weft {

Outcome Outcome::of(Error const& error) noexcept {
  Outcome outcome{error.code(), true, {}};
  std::strncpy(outcome.why, error.what(), sizeof outcome.why - 1);
  return outcome;
}

std::optional<Error> first_failure(Bootstrap& bootstrap, Outcome const& mine) {
  auto const bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::optional<Error> first;
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    Outcome theirs;
    std::memcpy(static_cast<void*>(&theirs), bytes.data() + static_cast<std::size_t>(rank) * sizeof theirs,
                sizeof theirs);
    if (!theirs.failed || (first && first->code() != ErrorCode::timeout)) continue;
    if (!first || theirs.code != ErrorCode::timeout) {
      first.emplace(theirs.code, fmt::format("rank {}: {}", rank, theirs.why));
    }
  }
  return first;
}

}  // namespace weft
