#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/merged_call.hpp"
#include "collectives/message.hpp"

namespace weft {

/// Knows which memory the calls of a group read and write on this rank, to find out whether one uses what another
/// writes.
///
/// In most groups buffers lie in rising or falling order, and results lie apart from what is read, or in its place.
/// Comparing each call with the hull of all earlier ones then shows that they are independent. Only for other groups
/// does dependence() sort the buffers.
class GroupBuffers {
 public:
  GroupBuffers(int rank, int ranks) noexcept : rank_(rank), ranks_(ranks) {}

  /// Counts the group's next collective call, which is later passed to dependence(); returns its number, from 1.
  std::uint32_t count() noexcept { return ++calls_; }
  /// Adds the group's next point-to-point call: what it sends and what it receives. Either may be null.
  void add(Message const* send, Message const* recv);

  /// Why calls depend on one another: "call 2 (all_reduce) uses what call 1 (all_reduce) writes". Empty: they do not.
  /// `calls`: all that were counted, with their numbers. For n calls it takes O(n) time where hulls are enough, or
  /// where reads, and writes, were added by rising address; else O(n log n).
  [[nodiscard]] std::string dependence(std::vector<MergedCall> const& calls);

  [[nodiscard]] std::uint32_t calls() const noexcept { return calls_; }

 private:
  struct Range {
    std::byte const* begin;
    std::byte const* end;
    std::uint32_t call;
    Operation operation;
  };
  /// The smallest range that holds all that were added. An empty one touches nothing and adds nothing.
  struct Hull {
    std::uintptr_t begin = UINTPTR_MAX;
    std::uintptr_t end = 0;

    [[nodiscard]] bool touches(Hull const& other) const noexcept { return begin < other.end && other.begin < end; }
    void add(Hull const& other) noexcept {
      begin = std::min(begin, other.begin);
      end = std::max(end, other.end);
    }
  };

  [[nodiscard]] static Hull hull(void const* data, std::size_t bytes) noexcept {
    auto const begin = reinterpret_cast<std::uintptr_t>(data);
    return bytes > 0 ? Hull{begin, begin + bytes} : Hull{};
  }
  /// Bytes that a call with equal parts reads (and writes) on this rank; `bytes`: of its unit.
  [[nodiscard]] std::size_t sent(Contract const& contract, std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t received(Contract const& contract, std::size_t bytes) const noexcept;
  void note(Hull const& read, Hull const& written) noexcept;
  void note(MergedCall const& calls) noexcept;
  [[nodiscard]] bool are_apart() const noexcept {
    return calls_apart_ || (writes_apart_ && !all_reads_.touches(all_writes_));
  }

  static void add_range(std::vector<Range>& ranges, void const* data, std::size_t bytes, std::uint32_t number,
                        Operation operation);
  void add_ranges(MergedCall const& calls);
  void add_unequal(Call const& call, std::uint32_t number);
  void add_parts(std::vector<Range>& ranges, void const* data, Call const& call, Parts const& parts,
                 std::uint32_t number);

  int rank_;
  int ranks_;
  std::uint32_t calls_ = 0;
  Hull all_reads_;
  Hull all_writes_;
  bool writes_apart_ = true;  // each call's writes lie outside the hull of earlier writes
  bool calls_apart_ = true;   // all that each call reads and writes lies outside the hull of earlier calls
  std::vector<Range> reads_;  // of messages; dependence() adds those of all calls
  std::vector<Range> writes_;
};

}  // namespace weft
