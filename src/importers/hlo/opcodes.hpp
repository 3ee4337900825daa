#pragma once

#include <cstdint>
#include <optional>

#include "importers/hlo/module.hpp"
#include "weft/op_graph.hpp"

namespace weft::hlo {

/// What an instruction is to the graph.
enum class Role : std::uint8_t {
  nothing,       ///< runs nothing: parameters, constants, tuples and their elements
  view,          ///< its result lies where its first operand does
  done,          ///< ends an asynchronous start: its result is a part of the start's
  pointwise,     ///< each element from a few elements of its operands: can be fused
  reduce,        ///< instructions before it can be fused into it
  update_slice,  ///< writes a slice of its first operand, in place
  collective,
  control,  ///< calls computations that are inlined
  kernel,   ///< everything else: runs alone
};

[[nodiscard]] Role role_of(Module const& module, Computation const& computation, Instruction const& instruction);

/// The kind of a collective's opcode, also with "-start"; empty for others.
[[nodiscard]] std::optional<CollectiveKind> collective_of(std::string_view opcode);

/// True for pointwise opcodes whose elements come from other places of their operands.
[[nodiscard]] bool moves_elements(std::string_view opcode);

/// Whether a pointwise instruction costs less if every operator that reads it does it again than if it is written and
/// read: it has one operand, and gives more bytes than it takes, or a part of what it takes.
[[nodiscard]] bool is_repeated(Computation const& computation, Instruction const& instruction);

}  // namespace weft::hlo
