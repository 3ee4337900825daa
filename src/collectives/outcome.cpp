#include "collectives/outcome.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "core/copy_text.hpp"

namespace weft {

Outcome Outcome::of(Error const& error) noexcept {
  Outcome outcome{error.code(), true, {}};
  copy_text(error.what(), outcome.why);
  return outcome;
}

std::optional<Error> first_failure(std::span<Outcome const> all, std::span<int const> ranks) {
  auto const says_much = [](ErrorCode code) {
    if (code == ErrorCode::peer_lost) return 3;
    if (code == ErrorCode::timeout) return 0;
    return code == ErrorCode::aborted ? 1 : 2;
  };
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].failed && (!first || says_much(all[i].code) > says_much(all[*first].code))) first = i;
  }
  if (!first) return std::nullopt;
  auto const rank = ranks.empty() ? static_cast<int>(*first) : ranks[*first];
  return Error(all[*first].code, fmt::format("rank {}: {}", rank, all[*first].why));
}

std::optional<Error> first_failure(Bootstrap& bootstrap, Outcome const& mine) {
  auto const bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<Outcome> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(static_cast<void*>(all.data()), bytes.data(), bytes.size());
  return first_failure(all);
}

}  // namespace weft
