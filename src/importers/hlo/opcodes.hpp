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
  done,          ///< of an asynchronous start: its result is a part of what the start has
  pointwise,     ///< each element from a few elements of its operands: can be fused
  reduce,        ///< what comes before can be fused into it
  update_slice,  ///< writes a slice of its first operand, in place
  collective,
  control,  ///< calls computations that are inlined
  kernel,   ///< everything else: runs alone
};

[[nodiscard]] Role role_of(Module const& module, Computation const& computation, Instruction const& instruction);

/// Also of the opcode with "-start".
[[nodiscard]] std::optional<CollectiveKind> collective_of(std::string_view opcode);

/// True for pointwise opcodes whose elements come from other places of their operands.
[[nodiscard]] bool moves_elements(std::string_view opcode);

/// A pointwise instruction that costs less to do again in each operator that reads it than to write and read: one
/// operand, and more bytes out than in, or a part of what is in.
[[nodiscard]] bool is_repeated(Computation const& computation, Instruction const& instruction);

}  // namespace weft::hlo
