#include "importers/hlo/opcodes.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "importers/hlo/attributes.hpp"

namespace weft::hlo {
namespace {

using Names = std::unordered_set<std::string_view>;

bool is_pointwise(std::string_view opcode) {
  static Names const names{"abs",
                           "add",
                           "and",
                           "atan2",
                           "broadcast",
                           "cbrt",
                           "ceil",
                           "clamp",
                           "compare",
                           "complex",
                           "concatenate",
                           "convert",
                           "copy",
                           "cosine",
                           "count-leading-zeros",
                           "divide",
                           "dynamic-slice",
                           "erf",
                           "exponential",
                           "exponential-minus-one",
                           "floor",
                           "imag",
                           "iota",
                           "is-finite",
                           "log",
                           "log-plus-one",
                           "logistic",
                           "map",
                           "maximum",
                           "minimum",
                           "multiply",
                           "negate",
                           "not",
                           "or",
                           "pad",
                           "popcnt",
                           "power",
                           "real",
                           "reduce-precision",
                           "remainder",
                           "reverse",
                           "round-nearest-afz",
                           "round-nearest-even",
                           "rsqrt",
                           "select",
                           "shift-left",
                           "shift-right-arithmetic",
                           "shift-right-logical",
                           "sign",
                           "sine",
                           "slice",
                           "sqrt",
                           "stochastic-convert",
                           "subtract",
                           "tan",
                           "tanh",
                           "transpose",
                           "xor"};
  return names.contains(opcode);
}

/// True where both arrays have the same bytes in the same order: dimension i of `to` is dimension `from_dims[i]` of
/// `from`.
bool same_bytes(Shape const& from, Shape const& to, std::vector<std::int64_t> const& from_dims) {
  if (from.is_tuple || to.is_tuple || from_dims.size() != to.dims.size() || from.dims.size() != to.dims.size()) {
    return false;
  }
  std::vector<std::int64_t> before;
  std::vector<std::int64_t> after;
  for (auto const dim : layout_of(from)) {
    if (from.dims[static_cast<std::size_t>(dim)] != 1) before.push_back(dim);
  }
  for (auto const dim : layout_of(to)) {
    auto const source = from_dims[static_cast<std::size_t>(dim)];
    if (source < 0 || source >= static_cast<std::int64_t>(from.dims.size())) return false;
    if (to.dims[static_cast<std::size_t>(dim)] != 1) after.push_back(source);
  }
  return before == after;
}

bool keeps_precision(Module const& module, Instruction const& instruction) {
  std::string_view const type = instruction.shape.type;
  std::int64_t const exponent = type == "f16" ? 5 : 8;
  std::int64_t const mantissa = type == "f16" ? 10 : type == "bf16" ? 7 : 23;
  return type != "f64" && integer(module, instruction, "exponent_bits").value_or(0) >= exponent &&
         integer(module, instruction, "mantissa_bits").value_or(0) >= mantissa;
}

bool is_view(Module const& module, Computation const& computation, Instruction const& instruction) {
  if (instruction.operands.empty()) return false;
  Shape const& from = computation.instructions[static_cast<std::size_t>(instruction.operands.front())].shape;
  std::string_view const opcode = instruction.opcode;
  if (from.leaves != instruction.shape.leaves) return false;
  static Names const always{"reshape", "bitcast", "opt-barrier", "optimization-barrier", "domain", "add-dependency"};
  if (always.contains(opcode)) return true;
  if (opcode == "bitcast-convert") return from.bytes == instruction.shape.bytes;
  if (opcode == "convert") return from.type == instruction.shape.type;
  if (opcode == "reduce-precision") return keeps_precision(module, instruction);
  if (opcode == "transpose") return same_bytes(from, instruction.shape, integers(module, instruction, "dimensions"));
  if (opcode != "copy") return false;
  if (from.is_tuple) return true;
  std::vector<std::int64_t> unchanged(from.dims.size());
  for (std::size_t i = 0; i < unchanged.size(); ++i) unchanged[i] = static_cast<std::int64_t>(i);
  return same_bytes(from, instruction.shape, unchanged);
}

}  // namespace

std::optional<CollectiveKind> collective_of(std::string_view opcode) {
  if (opcode.ends_with("-start")) opcode.remove_suffix(6);
  if (opcode == "all-reduce") return CollectiveKind::all_reduce;
  if (opcode == "all-gather") return CollectiveKind::all_gather;
  if (opcode == "reduce-scatter") return CollectiveKind::reduce_scatter;
  if (opcode == "all-to-all" || opcode == "ragged-all-to-all") return CollectiveKind::all_to_all;
  if (opcode == "collective-permute") return CollectiveKind::permute;
  if (opcode == "collective-broadcast") return CollectiveKind::broadcast;
  return std::nullopt;
}

Role role_of(Module const& module, Computation const& computation, Instruction const& instruction) {
  static Names const nothing{"parameter",    "constant",   "tuple",     "get-tuple-element",
                             "partition-id", "replica-id", "after-all", "create-token"};
  static Names const control{"while", "conditional", "call", "fusion", "async-start"};
  std::string_view const opcode = instruction.opcode;
  if (nothing.contains(opcode)) return Role::nothing;
  if (is_view(module, computation, instruction)) return Role::view;
  if (opcode == "dynamic-update-slice" && instruction.operands.size() >= 2) return Role::update_slice;
  if (is_pointwise(opcode) && !instruction.shape.is_tuple) return Role::pointwise;
  if (opcode == "reduce" && !instruction.operands.empty()) return Role::reduce;
  if (collective_of(opcode)) return Role::collective;
  if ((opcode.ends_with("-done") || opcode == "async-update") && !instruction.operands.empty()) return Role::done;
  return control.contains(opcode) ? Role::control : Role::kernel;
}

bool moves_elements(std::string_view opcode) {
  static Names const names{"broadcast", "concatenate", "copy", "dynamic-slice", "pad", "reverse", "slice", "transpose"};
  return names.contains(opcode);
}

bool is_repeated(Computation const& computation, Instruction const& instruction) {
  static Names const parts{"broadcast", "slice", "dynamic-slice", "iota"};
  if (parts.contains(instruction.opcode)) return true;
  if (instruction.opcode != "convert" || instruction.operands.empty()) return false;
  return computation.instructions[static_cast<std::size_t>(instruction.operands.front())].shape.bytes <
         instruction.shape.bytes;
}

}  // namespace weft::hlo
