#include "scheduler/memory/canonical_search.hpp"

#include <algorithm>
#include <limits>

namespace weft {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLooksBetweenQuestions = 1 << 20;
/// The most passes of infer(): each makes bounds sharper, the first ones most.
constexpr int kMostPasses = 16;
/// The most buffers that may lie one upon another: each takes some hundred bytes of stack (with a sanitizer some
/// thousand), …
#if defined(__has_feature)
#define WEFT_LOOKS_FOR_ERRORS __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define WEFT_LOOKS_FOR_ERRORS 1
#else
#define WEFT_LOOKS_FOR_ERRORS 0
#endif
constexpr std::size_t kDeepest = WEFT_LOOKS_FOR_ERRORS ? 1024 : 4096;
/// … and has a list of those that are left. All of them together have no more entries.
constexpr std::size_t kMostListed = std::size_t{1} << 25;

}  // namespace

/// Bounds per section, of the buffers that wait there.
struct CanonicalSearch::Bounds {
  std::int64_t least;        ///< nothing more is placed below this
  std::int64_t lowest_top;   ///< the lowest end that any of them can have
  std::int64_t second_top;   ///< the lowest end of the others
  std::size_t lowest_owner;  ///< whose lowest_top is, by index into the set
};

/// The working memory of one placement in a connected set of buffers.
struct CanonicalSearch::Frame {
  std::vector<int> candidates;
  std::vector<int> rest;
};

CanonicalSearch::CanonicalSearch(Sections const& sections, std::span<int const> order, std::int64_t capacity)
    : sections_(sections),
      capacity_(capacity),
      order_(order.begin(), order.end()),
      rank_(sections.shapes.size()),
      floor_(sections.live.size()),
      waiting_(sections.live),
      resting_(sections.shapes.size()),
      offsets_(sections.shapes.size()),
      frames_(order.size() + 1) {
  for (std::size_t i = 0; i < order_.size(); ++i) rank_[static_cast<std::size_t>(order_[i])] = static_cast<int>(i);
}

CanonicalSearch::~CanonicalSearch() = default;

CanonicalSearch::Outcome CanonicalSearch::run(std::int64_t budget, std::function<bool()> const& stopped) {
  budget_ = asked_at_ = budget;
  stopped_ = &stopped;
  std::vector<int> buffers = order_;
  std::stable_sort(buffers.begin(), buffers.end(), [&](int a, int b) { return shape(a).begin() < shape(b).begin(); });
  bool const found = place(buffers, {-1, -1}, 0);
  if (found) return Outcome::found;
  if (too_deep_ || (!out_ && sections_.keeps_part)) return Outcome::inconclusive;
  return out_ ? Outcome::undecided : Outcome::impossible;
}

bool CanonicalSearch::exhausted() {
  if (asked_at_ - budget_ >= kLooksBetweenQuestions) {
    asked_at_ = budget_;
    out_ = (*stopped_)();
  }
  out_ = out_ || budget_ <= 0;
  return out_;
}

// Sets of buffers that share no section do not matter to one another. The smallest is placed first, as it fails
// soonest.
bool CanonicalSearch::place(std::span<int const> buffers, Last last, std::size_t depth) {
  auto const connected_from = [&](std::size_t first) {
    int end = shape(buffers[first]).end();
    std::size_t i = first + 1;
    for (; i < buffers.size() && shape(buffers[i]).begin() < end; ++i) end = std::max(end, shape(buffers[i]).end());
    return buffers.subspan(first, i - first);
  };
  if (buffers.empty()) return true;
  auto const first = connected_from(0);
  if (first.size() == buffers.size()) return place_connected(buffers, last, depth);
  std::vector<std::span<int const>> sets{first};
  for (std::size_t i = first.size(); i < buffers.size(); i += sets.back().size()) sets.push_back(connected_from(i));
  std::stable_sort(sets.begin(), sets.end(), [](auto const& a, auto const& b) { return a.size() < b.size(); });
  return std::all_of(sets.begin(), sets.end(), [&](auto const& set) { return place_connected(set, last, depth); });
}

bool CanonicalSearch::may_follow(int buffer, Last last) const noexcept {
  std::int64_t const offset = resting(buffer);
  return offset > last.offset || (offset == last.offset && rank(buffer) > last.rank);
}

bool CanonicalSearch::place_connected(std::span<int const> buffers, Last last, std::size_t depth) {
  if (exhausted()) return false;
  if (buffers.size() == 1) {
    int const only = buffers.front();
    if (!may_follow(only, last) || resting(only) + shape(only).bytes > capacity_) return false;
    offsets_[static_cast<std::size_t>(only)] = resting(only);
    return true;
  }
  if (depth >= kDeepest || depth * order_.size() >= kMostListed) {
    out_ = too_deep_ = true;
    return false;
  }
  Frame& frame = frames_[depth];
  if (!infer(buffers, last)) return false;
  find_candidates(buffers, frame);
  for (std::size_t i = 0; i < frame.candidates.size(); ++i) {
    if (is_twin_of_earlier(i, frame)) continue;
    if (place_first(frame.candidates[i], buffers, frame, depth)) return true;
    if (out_) return false;
  }
  return false;
}

// Raises bounds until nothing changes: those of the sections follow from those of the buffers in them, and the reverse.
bool CanonicalSearch::infer(std::span<int const> buffers, Last last) {
  int begin = std::numeric_limits<int>::max();
  int end = 0;
  std::int64_t looks = 0;
  for (int const buffer : buffers) {
    begin = std::min(begin, shape(buffer).begin());
    end = std::max(end, shape(buffer).end());
    for (Piece const& piece : shape(buffer).pieces) looks += piece.end - piece.begin;
  }
  begin_ = begin;
  bounds_.resize(static_cast<std::size_t>(end - begin));
  least_.clear();
  ready_.clear();
  for (int const buffer : buffers) {
    bool const ready = may_follow(buffer, last);
    ready_.push_back(static_cast<char>(ready));
    // A buffer that may not follow where it rests now is placed higher, on a buffer that is yet to be placed.
    least_.push_back(ready ? resting(buffer) : last.offset + 1);
  }
  bool changed = true;
  for (int pass = 0; changed && pass < kMostPasses; ++pass) {
    budget_ -= looks;
    if (!raise_sections(buffers) || !raise_buffers(buffers, changed)) return false;
  }
  return true;
}

bool CanonicalSearch::raise_sections(std::span<int const> buffers) {
  for (auto& bounds : bounds_) bounds = {kNever, kNever, kNever, 0};
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (Piece const& piece : shape(buffers[i]).pieces) {
      std::int64_t const top = least_[i] + piece.height;
      for (int section = piece.begin; section < piece.end; ++section) {
        auto& bounds = bounds_[static_cast<std::size_t>(section - begin_)];
        bounds.least = std::min(bounds.least, least_[i]);
        if (top < bounds.lowest_top) {
          bounds.second_top = bounds.lowest_top;
          bounds.lowest_top = top;
          bounds.lowest_owner = i;
        } else {
          bounds.second_top = std::min(bounds.second_top, top);
        }
      }
    }
  }
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    auto& least = bounds_[i].least;
    if (least == kNever) continue;
    auto const section = static_cast<std::size_t>(begin_) + i;
    least = std::max(least, floor_[section]);
    if (least + waiting_[section] > capacity_) return false;
  }
  return true;
}

bool CanonicalSearch::raise_buffers(std::span<int const> buffers, bool& changed) {
  changed = false;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    std::int64_t least = least_[i];
    std::int64_t support = kNever;  // the lowest end of another that it can lie on
    for (Piece const& piece : shape(buffers[i]).pieces) {
      for (int section = piece.begin; section < piece.end; ++section) {
        auto const& bounds = bounds_[static_cast<std::size_t>(section - begin_)];
        least = std::max(least, bounds.least);
        support = std::min(support, bounds.lowest_owner == i ? bounds.second_top : bounds.lowest_top);
      }
    }
    if (ready_[i] != 0 && least > resting(buffers[i])) ready_[i] = 0;
    if (ready_[i] == 0) {
      if (support == kNever) return false;
      least = std::max(least, support);
    }
    least = align_up(least, shape(buffers[i]).alignment);
    if (least <= least_[i]) continue;
    if (least + shape(buffers[i]).bytes > capacity_) return false;
    least_[i] = least;
    changed = true;
  }
  return true;
}

// A buffer that would leave room below it for another one, which has to come later, is no candidate: that other buffer
// could drop there, and a search that places it first finds what this one would.
void CanonicalSearch::find_candidates(std::span<int const> buffers, Frame& frame) const {
  std::int64_t lowest_top = kNever;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    lowest_top = std::min(lowest_top, least_[i] + shape(buffers[i]).bytes);
  }
  frame.candidates.clear();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (ready_[i] != 0 && resting(buffers[i]) < lowest_top) frame.candidates.push_back(buffers[i]);
  }
  std::sort(frame.candidates.begin(), frame.candidates.end(),
            [&](int a, int b) { return resting(a) != resting(b) ? resting(a) < resting(b) : rank(a) < rank(b); });
}

bool CanonicalSearch::is_twin_of_earlier(std::size_t candidate, Frame const& frame) const {
  Shape const& mine = shape(frame.candidates[candidate]);
  auto const same = [](Piece const& a, Piece const& b) {
    return a.begin == b.begin && a.end == b.end && a.height == b.height;
  };
  return std::any_of(
      frame.candidates.begin(), frame.candidates.begin() + static_cast<std::ptrdiff_t>(candidate), [&](int earlier) {
        Shape const& other = shape(earlier);
        return other.bytes == mine.bytes && other.alignment == mine.alignment &&
               std::equal(other.pieces.begin(), other.pieces.end(), mine.pieces.begin(), mine.pieces.end(), same);
      });
}

bool CanonicalSearch::rest_on(int placed, std::span<int const> buffers) {
  std::int64_t const offset = offsets_[static_cast<std::size_t>(placed)];
  bool fits = true;
  for (Piece const& piece : shape(placed).pieces) {
    for (int section = piece.begin; section < piece.end; ++section) {
      auto const at = static_cast<std::size_t>(section);
      sections_before_.push_back({at, floor_[at], waiting_[at]});
      floor_[at] = offset + piece.height;
      waiting_[at] -= piece.height;
      fits = fits && floor_[at] + waiting_[at] <= capacity_;
    }
  }
  if (!fits) return false;
  for (int const buffer : buffers) {
    std::int64_t rests = resting(buffer);
    auto at = shape(placed).pieces.begin();
    for (Piece const& piece : shape(buffer).pieces) {
      while (at != shape(placed).pieces.end() && at->end <= piece.begin) ++at;
      for (auto on = at; on != shape(placed).pieces.end() && on->begin < piece.end; ++on) {
        rests = std::max(rests, align_up(offset + on->height, shape(buffer).alignment));
      }
    }
    if (rests == resting(buffer)) continue;
    restings_before_.push_back({buffer, resting(buffer)});
    resting(buffer) = rests;
  }
  return true;
}

bool CanonicalSearch::place_first(int buffer, std::span<int const> buffers, Frame& frame, std::size_t depth) {
  std::size_t const sections = sections_before_.size();
  std::size_t const restings = restings_before_.size();
  frame.rest.clear();
  for (int const other : buffers) {
    if (other != buffer) frame.rest.push_back(other);
  }
  std::int64_t const offset = resting(buffer);
  offsets_[static_cast<std::size_t>(buffer)] = offset;
  if (rest_on(buffer, frame.rest) && place(frame.rest, {offset, rank(buffer)}, depth + 1)) return true;
  undo(sections, restings);
  return false;
}

/// Takes changes back until so many are left.
void CanonicalSearch::undo(std::size_t sections, std::size_t restings) {
  for (; sections_before_.size() > sections; sections_before_.pop_back()) {
    auto const& before = sections_before_.back();
    floor_[before.section] = before.floor;
    waiting_[before.section] = before.waiting;
  }
  for (; restings_before_.size() > restings; restings_before_.pop_back()) {
    resting(restings_before_.back().buffer) = restings_before_.back().resting;
  }
}

}  // namespace weft
