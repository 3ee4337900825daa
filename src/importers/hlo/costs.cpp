#include "importers/hlo/costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "importers/hlo/attributes.hpp"

namespace weft::hlo {
namespace {

Shape const& operand(Computation const& computation, Instruction const& instruction, std::size_t k) {
  return computation.instructions[static_cast<std::size_t>(instruction.operands[k])].shape;
}

double all_bytes(Computation const& computation, Instruction const& instruction) {
  auto bytes = static_cast<double>(instruction.shape.bytes);
  for (std::size_t k = 0; k < instruction.operands.size(); ++k) {
    bytes += static_cast<double>(operand(computation, instruction, k).bytes);
  }
  return bytes;
}

std::string unknown_name(Instruction const& instruction) {
  auto const target = find(instruction, "custom_call_target");
  return target ? fmt::format("{} {}", instruction.opcode, *target) : std::string(instruction.opcode);
}

double dot_flops(Module const& module, Computation const& computation, Instruction const& dot) {
  auto const& left = operand(computation, dot, 0);
  auto flops = 2 * static_cast<double>(dot.shape.elements);
  for (auto const dim : integers(module, dot, "lhs_contracting_dims")) {
    if (dim < 0 || static_cast<std::size_t>(dim) >= left.dims.size()) {
      fail(module, dot.position, fmt::format("{}: its first operand has no dimension {}", dot.name, dim));
    }
    flops *= static_cast<double>(left.dims[static_cast<std::size_t>(dim)]);
  }
  return flops;
}

/// Each output element takes the kernel's elements that belong to one output feature: dim_labels=b01f_01io->b01f.
double convolution_flops(Computation const& computation, Instruction const& convolution) {
  auto const& kernel = operand(computation, convolution, 1);
  auto labels = find(convolution, "dim_labels").value_or("");
  auto const start = labels.find('_');
  auto const end = labels.find("->");
  if (start == std::string_view::npos || end == std::string_view::npos || end < start) return -1;
  auto const feature = labels.substr(start + 1, end - start - 1).find('o');
  if (feature >= kernel.dims.size() || kernel.dims[feature] == 0) return -1;
  return 2 * static_cast<double>(convolution.shape.elements) * static_cast<double>(kernel.elements) /
         static_cast<double>(kernel.dims[feature]);
}

/// "mask_type = 3 : i64"
std::int64_t setting(Instruction const& call, std::string_view name, std::int64_t otherwise) {
  auto const config = find(call, "backend_config").value_or("");
  auto const at = config.find(fmt::format("{} = ", name));
  if (at == std::string_view::npos) return otherwise;
  auto const text = config.substr(at + name.size() + 3);
  std::int64_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Cost attention_cost(Computation const& computation, Instruction const& call) {
  bool const forward =
      call.opcode == "custom-call" && find(call, "custom_call_target")->find("forward") != std::string_view::npos;
  Cost cost{.flops = 0, .bytes = all_bytes(computation, call), .unknown = {}};
  auto const& query = operand(computation, call, 0);
  auto const& key = operand(computation, call, 1);
  if (query.dims.size() != 4 || key.dims.size() < 4) {
    cost.unknown = unknown_name(call);
    return cost;
  }
  auto const batch_and_heads = static_cast<double>(query.dims[0]) * static_cast<double>(query.dims[2]);
  auto const pairs = static_cast<double>(query.dims[1]) * static_cast<double>(key.dims[1]);
  auto const deep = static_cast<double>(query.dims[3]);
  auto const value_deep = static_cast<double>(setting(call, "v_head_dim", query.dims[3]));
  auto const mask = setting(call, "mask_type", 0);
  double const kept = mask >= 2 && mask <= 5 ? 0.5 : 1;
  double const products = forward ? deep + value_deep : 3 * deep + 2 * value_deep;
  cost.flops = 2 * batch_and_heads * pairs * kept * products;
  for (auto const& part : call.shape.parts) {
    if (part.type == "u8") cost.bytes -= static_cast<double>(part.bytes);  // u8 results are room to work in
  }
  return cost;
}

}  // namespace

Cost cost_of(Module const& module, Computation const& computation, Instruction const& instruction) {
  std::string_view const opcode = instruction.opcode;
  auto const operands = instruction.operands.size();
  Cost cost{.flops = 0, .bytes = all_bytes(computation, instruction), .unknown = {}};
  auto const result = static_cast<double>(instruction.shape.bytes);
  if (opcode == "dot" && operands == 2) {
    cost.flops = dot_flops(module, computation, instruction);
  } else if (opcode == "convolution" && operands == 2) {
    cost.flops = convolution_flops(computation, instruction);
  } else if (opcode == "custom-call" && operands >= 2 &&
             find(instruction, "custom_call_target").value_or("").find("te_fused_attn") != std::string_view::npos) {
    return attention_cost(computation, instruction);
  } else if (opcode == "gather" && operands == 2) {
    cost.bytes = 2 * result + static_cast<double>(operand(computation, instruction, 1).bytes);
  } else if (opcode == "scatter" && operands >= 3 && operands % 2 == 1) {
    // The operands are arrays, indices, and updates for each array. It reads indices and updates, and reads and writes
    // the places that the updates go to.
    auto const indices = operands / 2;
    cost.bytes = static_cast<double>(operand(computation, instruction, indices).bytes);
    for (auto update = indices + 1; update < operands; ++update) {
      cost.bytes += 3 * static_cast<double>(operand(computation, instruction, update).bytes);
    }
  } else {
    static std::unordered_set<std::string_view> const known{"sort", "reduce-window",     "select-and-scatter",
                                                            "rng",  "rng-bit-generator", "rng-get-and-update-state"};
    if (!known.contains(opcode)) cost.unknown = unknown_name(instruction);
  }
  if (cost.flops < 0) {
    cost.flops = 0;
    cost.unknown = unknown_name(instruction);
  }
  return cost;
}

double alone_bytes(Computation const& computation, Instruction const& instruction) {
  auto const result = static_cast<double>(instruction.shape.bytes);
  if (instruction.opcode == "slice" || instruction.opcode == "dynamic-slice") return 2 * result;
  if (instruction.opcode == "dynamic-update-slice") {
    return 2 * static_cast<double>(operand(computation, instruction, 1).bytes);
  }
  return all_bytes(computation, instruction);
}

}  // namespace weft::hlo
