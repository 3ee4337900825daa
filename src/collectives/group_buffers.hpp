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

/// Which memory the calls of a group read and write here, to find out whether one uses what another writes.
///
/// Most groups' buffers lie in rising or falling order, results apart from what is read or in its place, and are known
/// to be independent by the hulls of what came before each call; only where they do not does dependence() sort them.
class GroupBuffers {
 public:
  GroupBuffers(int rank, int ranks) noexcept : rank_(rank), ranks_(ranks) {}

  /// The group's next collective call, of which dependence() hears; its number, from 1.
  std::uint32_t count() noexcept { return ++calls_; }
  /// The next call, what it sends and receives; either may be null.
  void add(Message const* send, Message const* recv);

  /// Why the calls depend on one another: "call 2 (all_reduce) uses what call 1 (all_reduce) writes". Empty: they do
  /// not. `calls`: all that were counted, with their numbers. Of n calls it takes O(n) time where hulls are enough or
  /// those of each kind were added by rising address, else O(n log n).
  [[nodiscard]] std::string dependence(std::vector<MergedCall> const& calls);

  [[nodiscard]] std::uint32_t calls() const noexcept { return calls_; }

 private:
  struct Range {
    std::byte const* begin;
    std::byte const* end;
    std::uint32_t call;
    Operation operation;
  };
  /// The smallest range that holds all that were added. Empty, it touches nothing and adds nothing.
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
  /// Of calls with equal parts, `bytes` each or in all: what this rank's call reads and writes.
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
  bool writes_apart_ = true;  // each call's from the hull of those before
  bool calls_apart_ = true;   // the same of all that a call uses
  std::vector<Range> reads_;  // of messages; in dependence(), of all
  std::vector<Range> writes_;
};

}  // namespace weft
