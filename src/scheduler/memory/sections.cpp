#include "scheduler/memory/sections.hpp"

#include <algorithm>
#include <numeric>

namespace weft {

namespace {

/// A time in which a buffer needs a certain number of bytes for itself.
struct Phase {
  TimeSpan when;
  std::int64_t height;
  std::int64_t needed;
};

std::vector<Phase> phases_of(PlannedBuffer const& buffer) {
  std::vector<LifeGap> gaps = buffer.gaps;
  std::sort(gaps.begin(), gaps.end(), [](auto const& a, auto const& b) { return a.when.begin < b.when.begin; });
  std::vector<Phase> phases;
  auto const add = [&](TimeSpan when, std::int64_t height, std::int64_t needed) {
    if (when.begin < when.end && height > 0) phases.push_back({when, height, needed});
  };
  std::int64_t now = buffer.life.begin;
  for (auto const& gap : gaps) {
    add({now, gap.when.begin}, buffer.bytes, buffer.bytes);
    if (gap.kept_end > gap.kept_begin) add(gap.when, gap.kept_end, gap.kept_end - gap.kept_begin);
    now = gap.when.end;
  }
  add({now, buffer.life.end}, buffer.bytes, buffer.bytes);
  return phases;
}

}  // namespace

Sections make_sections(std::span<PlannedBuffer const> buffers) {
  std::vector<std::vector<Phase>> phases;
  std::vector<std::int64_t> moments;
  for (auto const& buffer : buffers) {
    phases.push_back(phases_of(buffer));
    for (auto const& phase : phases.back()) moments.insert(moments.end(), {phase.when.begin, phase.when.end});
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  auto const section_at = [&](std::int64_t moment) {
    return static_cast<int>(std::lower_bound(moments.begin(), moments.end(), moment) - moments.begin());
  };

  Sections sections;
  std::size_t const count = moments.empty() ? 0 : moments.size() - 1;
  std::vector<std::int64_t> needed(count + 1);  // by section, as differences from the section before
  std::vector<std::int64_t> live(count + 1);
  std::int64_t quantum = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    auto const& [name, life, bytes, alignment, gaps] = buffers[i];
    Shape shape{.bytes = bytes,
                .alignment = alignment,
                .duration = static_cast<double>(life.end) - static_cast<double>(life.begin),
                .pieces = {}};
    for (auto const& phase : phases[i]) {
      Piece const piece{section_at(phase.when.begin), section_at(phase.when.end), phase.height};
      shape.pieces.push_back(piece);
      auto const begin = static_cast<std::size_t>(piece.begin);
      auto const end = static_cast<std::size_t>(piece.end);
      needed[begin] += phase.needed;
      needed[end] -= phase.needed;
      live[begin] += phase.height;
      live[end] -= phase.height;
      sections.keeps_part |= phase.needed < phase.height;
      quantum = std::gcd(std::gcd(quantum, phase.height), phase.needed);
    }
    // An alignment of 1 moves nothing, so it does not count.
    if (!shape.pieces.empty()) quantum = std::gcd(quantum, alignment > 1 ? std::gcd(alignment, bytes) : bytes);
    sections.shapes.push_back(std::move(shape));
  }
  std::partial_sum(needed.begin(), needed.end(), needed.begin());
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  sections.live = std::move(live);
  sections.live_bytes = *std::max_element(needed.begin(), needed.end());
  sections.quantum = std::max<std::int64_t>(quantum, 1);
  return sections;
}

}  // namespace weft
