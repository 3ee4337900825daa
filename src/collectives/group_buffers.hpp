#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/message.hpp"

namespace weft {

/// Which memory the calls of a group read and write here.
class GroupBuffers {
 public:
  GroupBuffers(int rank, int ranks) noexcept : rank_(rank), ranks_(ranks) {}

  /// The group's next call.
  void add(Call const& call);
  /// What one call sends and receives; either may be null.
  void add(Message const* send, Message const* recv);

  /// Why the calls depend on one another: "call 2 (all_reduce) uses what call 1 (all_reduce) writes". Empty: they do
  /// not. Of n ranges, those of each kind added by rising address, it takes O(n) time, else O(n log n).
  [[nodiscard]] std::string dependence();

 private:
  struct Range {
    std::byte const* begin;
    std::byte const* end;
    std::uint32_t call;  ///< from 1
    Operation operation;
  };

  void add_range(std::vector<Range>& ranges, void const* data, std::size_t bytes, Operation operation);
  void add_parts(std::vector<Range>& ranges, void const* data, Call const& call, Parts const& parts);
  void add_sent(Call const& call);
  void add_received(Call const& call);

  int rank_;
  int ranks_;
  std::uint32_t calls_ = 0;
  std::vector<Range> reads_;
  std::vector<Range> writes_;
};

}  // namespace weft
