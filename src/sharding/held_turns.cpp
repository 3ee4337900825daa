#include "sharding/held_turns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::uint64_t kNoMore = std::numeric_limits<std::uint64_t>::max();

// FNV-1a, by words.
std::uint64_t digest_of(std::vector<std::uint64_t> const& words) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (std::uint64_t const word : words) digest = (digest ^ (word + 1)) * 0x100000001b3U;
  return digest;
}

std::string text_of(std::uint64_t unit, UnitLayout const& layout) {
  return unit == kNoMore ? "no more" : fmt::format("unit '{}' in backward", layout.name(unit));
}

}  // namespace

void HeldTurns::compare(Communicator& communicator, Stream const& stream) {
  auto const ranks = static_cast<std::size_t>(communicator.size());
  Comparison& one = comparisons_.emplace_back(
      Comparison{&communicator, digest_of(units_), std::vector<std::uint64_t>(ranks), Work()});
  one.work =
      communicator.all_gather(std::span<std::uint64_t const>(&one.mine, 1), std::span(one.digests), {stream, {}});
}

void HeldTurns::end_step(UnitLayout const& layout) {
  for (Comparison const& one : comparisons_) {
    one.work.wait();
    auto const differs = [&](std::uint64_t digest) { return digest != one.digests.front(); };
    if (std::any_of(one.digests.begin(), one.digests.end(), differs)) name_difference(*one.communicator, layout);
  }
  comparisons_.clear();
  units_.clear();
}

// All ranks of the communicator have seen the same digests, so all of them come here.
void HeldTurns::name_difference(Communicator& communicator, UnitLayout const& layout) const {
  std::uint64_t turns = units_.size() + 1;  // and one for the end of each list
  communicator.all_reduce(std::span(&turns, 1), std::span(&turns, 1), ReduceOp::max).wait();
  std::vector<std::uint64_t> mine = units_;
  mine.resize(turns, kNoMore);
  std::vector<std::uint64_t> all(turns * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::span<std::uint64_t const>(mine), std::span(all)).wait();
  std::size_t at = turns;
  while (all[at] == all[at % turns]) ++at;
  throw Error(ErrorCode::mismatch,
              fmt::format("backward {} under no_sync differs between ranks: rank 0 made {}, rank {} made {}; make the "
                          "calls equal (communicator {})",
                          at % turns, text_of(all[at % turns], layout), at / turns, text_of(all[at], layout),
                          communicator.options().name));
}

}  // namespace weft
