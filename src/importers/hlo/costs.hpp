#pragma once

#include <string>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

struct Cost {
  double flops = 0;
  double bytes = 0;       ///< of memory read and written
  std::string unknown{};  ///< names the instruction where only the bytes of its operands and results are known
};

/// The cost of one instruction that runs alone: dot, convolution, attention, sort, gather, scatter, windows. Any other
/// costs the bytes of its operands and results.
///
/// Attention (te_fused_attn_*) with a batch of B, H heads of d elements, Sq queries and Skv keys does two products
/// forward and five backward, 2·B·H·Sq·Skv·d each; a causal mask (mask_type 2 to 5) leaves half of that.
[[nodiscard]] Cost cost_of(Module const& module, Computation const& computation, Instruction const& instruction);

/// The bytes that a pointwise instruction, a reduction or an update in place would read and write if it ran alone.
[[nodiscard]] double alone_bytes(Computation const& computation, Instruction const& instruction);

}  // namespace weft::hlo
