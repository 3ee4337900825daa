#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "scheduler/memory/sections.hpp"

namespace weft {

/// Looks for offsets within a capacity among canonical solutions: those that arise by placing buffers in the order of
/// their offsets (of equal ones in the order of `rank`), each directly on what is below it in its sections. Any
/// solution becomes such a one by dropping what can be dropped, so where there is none there is no solution at all.
///
/// One object makes one search. Its answer depends on its arguments alone, unless it is stopped.
class CanonicalSearch {
 public:
  enum class Outcome { found, impossible, undecided };

  /// `order`: of buffers with equal offsets the one that is first here is placed first, and it is tried first. Both
  /// arguments outlive the search.
  CanonicalSearch(Sections const& sections, std::span<int const> order, std::int64_t capacity);
  ~CanonicalSearch();
  CanonicalSearch(CanonicalSearch const&) = delete;
  CanonicalSearch& operator=(CanonicalSearch const&) = delete;

  /// Undecided after `budget` looks at a buffer in a section, or once `stopped` says so (asked now and then). Where
  /// pieces keep more than is needed in a gap, a search that finds nothing decides nothing either.
  [[nodiscard]] Outcome run(std::int64_t budget, std::function<bool()> const& stopped);
  /// One per buffer, of what was found.
  [[nodiscard]] std::vector<std::int64_t> const& offsets() const noexcept { return offsets_; }

 private:
  /// The placement before: the next has a higher offset, or the same and a later rank.
  struct Last {
    std::int64_t offset;
    int rank;
  };
  struct Frame;

  /// `buffers` are in the order of their first sections.
  [[nodiscard]] bool place(std::span<int const> buffers, Last last, std::size_t depth);
  [[nodiscard]] bool place_connected(std::span<int const> buffers, Last last, std::size_t depth);
  [[nodiscard]] bool place_first(int buffer, std::span<int const> buffers, Frame& frame, std::size_t depth);
  [[nodiscard]] bool infer(std::span<int const> buffers, Last last, Frame& frame);
  [[nodiscard]] bool raise_sections(std::span<int const> buffers, Frame& frame) const;
  [[nodiscard]] bool raise_buffers(std::span<int const> buffers, Frame& frame, bool& changed) const;
  void find_candidates(std::span<int const> buffers, Frame& frame) const;
  [[nodiscard]] bool is_twin_of_earlier(std::size_t candidate, Frame const& frame) const;
  /// False where what waits above it has no room.
  [[nodiscard]] bool rest_on(int placed, std::span<int const> buffers);
  [[nodiscard]] bool may_follow(int buffer, Last last) const noexcept;
  [[nodiscard]] bool exhausted();

  [[nodiscard]] Shape const& shape(int buffer) const { return sections_.shapes[static_cast<std::size_t>(buffer)]; }
  [[nodiscard]] std::int64_t& resting(int buffer) { return resting_[static_cast<std::size_t>(buffer)]; }
  [[nodiscard]] std::int64_t resting(int buffer) const { return resting_[static_cast<std::size_t>(buffer)]; }
  [[nodiscard]] int rank(int buffer) const { return rank_[static_cast<std::size_t>(buffer)]; }

  Sections const& sections_;
  std::int64_t capacity_;
  std::vector<int> order_;
  std::vector<int> rank_;              ///< per buffer: its place in the order
  std::vector<std::int64_t> floor_;    ///< per section: where what is placed there ends
  std::vector<std::int64_t> waiting_;  ///< per section: bytes of what is not placed
  std::vector<std::int64_t> resting_;  ///< per buffer: its offset if it were placed now
  std::vector<std::int64_t> offsets_;
  std::vector<Frame> frames_;  ///< per depth, kept for their memory
  std::int64_t budget_ = 0;
  std::int64_t asked_at_ = 0;
  std::function<bool()> const* stopped_ = nullptr;
  bool out_ = false;
};

}  // namespace weft
