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
  bool lies_there = true;  ///< false: only its place is needed, as for the array that an update in place writes into
  bool in_order = true;    ///< element by element, in the order of the reader's own elements
};

/// Units: instructions that are one operator together, in an order in which the units can run.
struct Units {
  std::vector<std::vector<int>> members{};  ///< of each unit, in the order of the text
  std::vector<int> of{};                    ///< by instruction: its unit; -1 where nothing runs for it
  std::vector<std::vector<Read>> reads{};   ///< by instruction: what it reads, also by way of what is repeated in it
  std::vector<bool> escapes{};              ///< by slot: whether another unit, or the caller, reads it
};

/// Groups a computation's instructions into operators.
///
/// A pointwise instruction joins one that reads its result if both go over equally many elements and no other operator
/// lies between them; it also joins a reduction or an update of a slice, which ends an operator. An instruction whose
/// readers are all in one operator joins that one. What is_repeated() is done again by each reader instead. Without
/// `fuse` each instruction is alone. `replaced`: by dynamic-slice the all-reduce that it turns into a reduce-scatter.
/// What no result needs is left out, unless it communicates or may have other effects.
[[nodiscard]] Units fuse_units(Computation const& computation, Flow const& flow,
                               std::unordered_map<int, int> const& replaced, bool fuse);

}  // namespace weft::hlo
