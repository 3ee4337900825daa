#pragma once

#include <cstddef>

#include "weft/buffer.hpp"

namespace weft::perf {

/// How many elements one rank passes and receives.
struct Counts {
  std::size_t send = 0;
  std::size_t recv = 0;
  std::size_t parameter = 0;  ///< the call's `count` argument, as in nccl-tests' count column
};

/// The views of one call on one rank: all it writes before the call, and all it reads after it. A rank that passes or
/// receives nothing (a gather's output on a rank that is not the root) has an empty one.
struct Operands {
  BufferView send;
  BufferView recv;
};

/// Which rank this is, of how many, and which one a rooted operation centres on.
struct Place {
  int rank = 0;
  int ranks = 1;
  int root = 0;

  [[nodiscard]] bool is_root() const noexcept { return rank == root; }
};

}  // namespace weft::perf
