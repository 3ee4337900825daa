#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "importers/hlo/flow.hpp"
#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// A slot that an instruction reads, and how much of it.
struct Read {
  int slot = -1;
  std::int64_t elements = 0;
  bool lies_there = true;  ///< false: only its place is needed, as of what an update in place writes into
  bool in_order = true;    ///< element by element, as the reader goes over its own
};

/// What runs: instructions that are one operator together, in an order in which they can run.
struct Units {
  std::vector<std::vector<int>> members{};  ///< of each unit, in the order of the text
  std::vector<int> of{};                    ///< the unit of each instruction, -1 where nothing runs for it
  std::vector<std::vector<Read>> reads{};   ///< of each instruction, through what is repeated in it
  std::vector<bool> escapes{};              ///< of each slot: another unit reads it, or whoever calls
};

/// Groups a computation's instructions into operators.
///
/// A pointwise instruction joins one that reads its result if both go over equally many elements and no other operator
/// lies between them; so do those that come before a reduction or an update of a slice, which end an operator. One
/// whose readers are all in one operator joins that. What is_repeated() is done again by each reader instead.
/// `replaced`: by dynamic-slice the all-reduce that it makes a reduce-scatter of. Without `fuse` each instruction
/// is alone. What no result needs is left out, unless it communicates or may do something else besides.
[[nodiscard]] Units fuse_units(Computation const& computation, Flow const& flow,
                               std::unordered_map<int, int> const& replaced, bool fuse);

}  // namespace weft::hlo
