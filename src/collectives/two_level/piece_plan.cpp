#include "collectives/two_level/piece_plan.hpp"

#include <algorithm>

namespace weft::two_level {

PiecePlan::PiecePlan(Call call, Levels const& levels, Parts const& parts)
    : Plan(std::move(call)), levels_(levels), width_(levels.region_bytes / levels.hosts() / element() * element()) {
  std::size_t longest = 0;
  for (int rank = 0; rank < levels.layout.size(); ++rank) {
    pieces_.push_back(this->call().part(parts, rank));
    longest = std::max(longest, pieces_.back().length);
  }
  steps_ = std::max<std::size_t>(1, (longest + width_ - 1) / width_);
}

ByteRange PiecePlan::range(std::size_t step, int rank) const noexcept {
  auto const& piece = pieces_[static_cast<std::size_t>(rank)];
  auto const first = offset(step);
  if (first >= piece.length) return {piece.offset, 0};
  return {piece.offset + first, std::min(width_, piece.length - first)};
}

std::size_t PiecePlan::bytes_of_place(std::size_t step) const noexcept {
  std::size_t bytes = 0;
  for (std::size_t host = 0; host < levels_.hosts(); ++host) bytes += range(step, levels_.rank_on(host)).length;
  return bytes;
}

std::vector<std::size_t> PiecePlan::counts_of_place(std::size_t step) const {
  std::vector<std::size_t> counts;
  for (std::size_t host = 0; host < levels_.hosts(); ++host)
    counts.push_back(range(step, levels_.rank_on(host)).length / element());
  return counts;
}

std::optional<InnerCall> PiecePlan::pieces_of(std::size_t host, std::size_t step, Operation equal,
                                              Operation unequal) const {
  PartsOfPlaces parts;
  bool any = false;
  for (int const rank : levels_.layout.hosts()[host]) {
    auto const [first, length] = range(step, rank);
    parts.add(first / element(), length / element());
    any = any || length > 0;
  }
  if (!any) return std::nullopt;
  return inner(call(), equal, unequal, parts, levels_.place());
}

}  // namespace weft::two_level
