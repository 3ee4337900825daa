#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "scheduler/memory/sections.hpp"

namespace weft {

/// Looks for offsets within a capacity among canonical solutions only: those that arise by placing buffers in the order
/// of their offsets (of equal ones in the order of `rank`), each directly on what is below it in its sections. Any
/// solution becomes canonical when every buffer drops as far as it can, so where there is no canonical solution there
/// is none at all.
///
/// One object makes one search. Its answer depends on its arguments alone, unless it is stopped.
class CanonicalSearch {
 public:
  enum class Outcome { found, impossible, undecided, inconclusive };

  /// `order`: of buffers with equal offsets the one that stands first here is placed first; candidates are tried in
  /// this order, too. Both `sections` and `order` outlive the search.
  CanonicalSearch(Sections const& sections, std::span<int const> order, std::int64_t capacity);
  ~CanonicalSearch();
  CanonicalSearch(CanonicalSearch const&) = delete;
  CanonicalSearch& operator=(CanonicalSearch const&) = delete;

  /// Undecided: `budget` looks at a buffer in a section were made, or `stopped` (asked now and then) said so.
  /// Inconclusive: more looks would not decide it, either because the search found nothing and some pieces keep more
  /// than is needed in a gap, or because more buffers had to be placed one upon another than the stack has room for.
  [[nodiscard]] Outcome run(std::int64_t budget, std::function<bool()> const& stopped);
  /// The offsets that were found, one per buffer.
  [[nodiscard]] std::vector<std::int64_t> const& offsets() const noexcept { return offsets_; }

 private:
  /// The placement before. The next one has a higher offset, or the same offset and a later rank.
  struct Last {
    std::int64_t offset;
    int rank;
  };
  struct Frame;
  struct Bounds;
  /// What a placement has changed, so that it can be taken back: SectionBefore and RestingBefore hold the values before
  /// it.
  struct SectionBefore {
    std::size_t section;
    std::int64_t floor;
    std::int64_t waiting;
  };
  struct RestingBefore {
    int buffer;
    std::int64_t resting;
  };

  /// `buffers` are in the order of their first sections.
  [[nodiscard]] bool place(std::span<int const> buffers, Last last, std::size_t depth);
  [[nodiscard]] bool place_connected(std::span<int const> buffers, Last last, std::size_t depth);
  [[nodiscard]] bool place_first(int buffer, std::span<int const> buffers, Frame& frame, std::size_t depth);
  [[nodiscard]] bool infer(std::span<int const> buffers, Last last);
  [[nodiscard]] bool raise_sections(std::span<int const> buffers);
  [[nodiscard]] bool raise_buffers(std::span<int const> buffers, bool& changed);
  void find_candidates(std::span<int const> buffers, Frame& frame) const;
  [[nodiscard]] bool is_twin_of_earlier(std::size_t candidate, Frame const& frame) const;
  /// Raises the buffers that wait above `placed` onto it. False where one of them has no room.
  [[nodiscard]] bool rest_on(int placed, std::span<int const> buffers);
  void undo(std::size_t sections, std::size_t restings);
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
  std::vector<std::int64_t> floor_;    ///< per section: where the placed buffers end
  std::vector<std::int64_t> waiting_;  ///< per section: bytes of the buffers that are not placed
  std::vector<std::int64_t> resting_;  ///< per buffer: its offset if it were placed now
  std::vector<std::int64_t> offsets_;
  std::vector<Frame> frames_;  ///< per depth, kept for their memory
  // Of the placement that is looked at: its sections are [begin_, begin_ + bounds_.size()) …
  int begin_ = 0;
  std::vector<Bounds> bounds_;
  // … and, by index into its buffers,
  std::vector<std::int64_t> least_;  ///< a lower bound of the offset
  std::vector<char> ready_;          ///< whether it may be placed next, where it rests
  // All changes since the beginning, for undo().
  std::vector<SectionBefore> sections_before_;
  std::vector<RestingBefore> restings_before_;
  std::int64_t budget_ = 0;
  std::int64_t asked_at_ = 0;
  std::function<bool()> const* stopped_ = nullptr;
  bool out_ = false;
  bool too_deep_ = false;
};

}  // namespace weft
