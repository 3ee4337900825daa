#include "scheduler/memory/canonical_search.hpp"

#include <algorithm>
#include <limits>

namespace weft {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLooksBetweenQuestions = 1 << 20;
/// Each makes bounds sharper, the first ones most.
constexpr int kMostPasses = 16;

}  // namespace

/// What one placement looks at, for a connected set of buffers and the sections that they span.
struct CanonicalSearch::Frame {
  /// Per section, of what waits there.
  struct Bounds {
    std::int64_t least;        ///< below this nothing more is placed
    std::int64_t lowest_top;   ///< where the first of them can end
    std::int64_t second_top;   ///< the first of the others
    std::size_t lowest_owner;  ///< whose lowest_top is, by index into the set
  };

  int begin = 0;  ///< sections [begin, begin + bounds.size())
  std::vector<Bounds> bounds;
  std::vector<std::int64_t> least;  ///< per buffer: a bound of its offset
  std::vector<char> ready;          ///< per buffer: may be placed next, where it rests
  std::vector<int> candidates;
  std::vector<int> rest;
  std::vector<std::int64_t> floor_before;
  std::vector<std::int64_t> waiting_before;
  std::vector<std::int64_t> resting_before;
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
  return out_ || sections_.keeps_part ? Outcome::undecided : Outcome::impossible;
}

bool CanonicalSearch::exhausted() {
  if (asked_at_ - budget_ >= kLooksBetweenQuestions) {
    asked_at_ = budget_;
    out_ = (*stopped_)();
  }
  out_ = out_ || budget_ <= 0;
  return out_;
}

// Sets that are in no section together do not matter to one another; the smallest fails soonest.
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
  Frame& frame = frames_[depth];
  if (!infer(buffers, last, frame)) return false;
  find_candidates(buffers, frame);
  for (std::size_t i = 0; i < frame.candidates.size(); ++i) {
    if (is_twin_of_earlier(i, frame)) continue;
    if (place_first(frame.candidates[i], buffers, frame, depth)) return true;
    if (out_) return false;
  }
  return false;
}

// Bounds of the sections follow from those of the buffers in them, and the reverse.
bool CanonicalSearch::infer(std::span<int const> buffers, Last last, Frame& frame) {
  int begin = std::numeric_limits<int>::max();
  int end = 0;
  std::int64_t looks = 0;
  for (int const buffer : buffers) {
    begin = std::min(begin, shape(buffer).begin());
    end = std::max(end, shape(buffer).end());
    for (Piece const& piece : shape(buffer).pieces) looks += piece.end - piece.begin;
  }
  frame.begin = begin;
  frame.bounds.resize(static_cast<std::size_t>(end - begin));
  frame.least.clear();
  frame.ready.clear();
  for (int const buffer : buffers) {
    bool const ready = may_follow(buffer, last);
    frame.ready.push_back(static_cast<char>(ready));
    // What may not follow where it rests now is placed higher, on something that is yet to be placed.
    frame.least.push_back(ready ? resting(buffer) : last.offset + 1);
  }
  bool changed = true;
  for (int pass = 0; changed && pass < kMostPasses; ++pass) {
    budget_ -= looks;
    if (!raise_sections(buffers, frame) || !raise_buffers(buffers, frame, changed)) return false;
  }
  return true;
}

bool CanonicalSearch::raise_sections(std::span<int const> buffers, Frame& frame) const {
  for (auto& bounds : frame.bounds) bounds = {kNever, kNever, kNever, 0};
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (Piece const& piece : shape(buffers[i]).pieces) {
      std::int64_t const top = frame.least[i] + piece.height;
      for (int section = piece.begin; section < piece.end; ++section) {
        auto& bounds = frame.bounds[static_cast<std::size_t>(section - frame.begin)];
        bounds.least = std::min(bounds.least, frame.least[i]);
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
  for (std::size_t i = 0; i < frame.bounds.size(); ++i) {
    auto& least = frame.bounds[i].least;
    if (least == kNever) continue;
    auto const section = static_cast<std::size_t>(frame.begin) + i;
    least = std::max(least, floor_[section]);
    if (least + waiting_[section] > capacity_) return false;
  }
  return true;
}

bool CanonicalSearch::raise_buffers(std::span<int const> buffers, Frame& frame, bool& changed) const {
  changed = false;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    std::int64_t least = frame.least[i];
    std::int64_t support = kNever;  // the lowest end of another that it can lie on
    for (Piece const& piece : shape(buffers[i]).pieces) {
      for (int section = piece.begin; section < piece.end; ++section) {
        auto const& bounds = frame.bounds[static_cast<std::size_t>(section - frame.begin)];
        least = std::max(least, bounds.least);
        support = std::min(support, bounds.lowest_owner == i ? bounds.second_top : bounds.lowest_top);
      }
    }
    if (frame.ready[i] != 0 && least > resting(buffers[i])) frame.ready[i] = 0;
    if (frame.ready[i] == 0) {
      if (support == kNever) return false;
      least = std::max(least, support);
    }
    least = align_up(least, shape(buffers[i]).alignment);
    if (least <= frame.least[i]) continue;
    if (least + shape(buffers[i]).bytes > capacity_) return false;
    frame.least[i] = least;
    changed = true;
  }
  return true;
}

// A buffer that would leave room below it for another, which has to come later, is no candidate: that other could drop
// there, and a search that places it first finds what this one would.
void CanonicalSearch::find_candidates(std::span<int const> buffers, Frame& frame) const {
  std::int64_t lowest_top = kNever;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    lowest_top = std::min(lowest_top, frame.least[i] + shape(buffers[i]).bytes);
  }
  frame.candidates.clear();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (frame.ready[i] != 0 && resting(buffers[i]) < lowest_top) frame.candidates.push_back(buffers[i]);
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
      floor_[at] = offset + piece.height;
      waiting_[at] -= piece.height;
      fits = fits && floor_[at] + waiting_[at] <= capacity_;
    }
  }
  if (!fits) return false;
  for (int const buffer : buffers) {
    std::int64_t& rests = resting(buffer);
    auto at = shape(placed).pieces.begin();
    for (Piece const& piece : shape(buffer).pieces) {
      while (at != shape(placed).pieces.end() && at->end <= piece.begin) ++at;
      for (auto on = at; on != shape(placed).pieces.end() && on->begin < piece.end; ++on) {
        rests = std::max(rests, align_up(offset + on->height, shape(buffer).alignment));
      }
    }
  }
  return true;
}

bool CanonicalSearch::place_first(int buffer, std::span<int const> buffers, Frame& frame, std::size_t depth) {
  auto const begin = floor_.begin() + frame.begin;
  auto const waiting = waiting_.begin() + frame.begin;
  auto const sections = static_cast<std::ptrdiff_t>(frame.bounds.size());
  frame.floor_before.assign(begin, begin + sections);
  frame.waiting_before.assign(waiting, waiting + sections);
  frame.resting_before.clear();
  frame.rest.clear();
  for (int const other : buffers) {
    frame.resting_before.push_back(resting(other));
    if (other != buffer) frame.rest.push_back(other);
  }
  std::int64_t const offset = resting(buffer);
  offsets_[static_cast<std::size_t>(buffer)] = offset;
  if (rest_on(buffer, frame.rest) && place(frame.rest, {offset, rank(buffer)}, depth + 1)) return true;
  std::copy(frame.floor_before.begin(), frame.floor_before.end(), begin);
  std::copy(frame.waiting_before.begin(), frame.waiting_before.end(), waiting);
  for (std::size_t i = 0; i < buffers.size(); ++i) resting(buffers[i]) = frame.resting_before[i];
  return false;
}

}  // namespace weft
