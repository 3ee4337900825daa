#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "importers/hlo/shape.hpp"

namespace weft::hlo {

struct Attribute {
  std::string_view name{};
  std::string_view value{};  ///< as it is written, with its brackets or quotes
};

struct Instruction {
  std::string_view name{};
  std::string_view opcode{};
  Shape shape{};
  std::vector<int> operands{};  ///< indices of earlier instructions of the computation
  std::string_view literal{};   ///< of a constant: what stands between its parentheses
  std::int64_t parameter = -1;  ///< of a parameter: its number
  std::vector<Attribute> attributes{};
  std::size_t position = 0;  ///< in the text
};

struct Computation {
  std::string_view name{};
  std::vector<Instruction> instructions{};  ///< each after its operands
  int root = 0;
  std::vector<int> parameters{};  ///< the instruction of each parameter, by number
};

/// An HLO module as its text says it; nothing is interpreted yet. Its views look into `text`, which stays in place when
/// the module is moved.
struct Module {
  std::string source{};  ///< what errors call the text
  std::vector<char> text{};
  std::string_view name{};
  std::vector<Attribute> attributes{};
  std::vector<Computation> computations{};
  std::unordered_map<std::string_view, int> by_name{};  ///< of computations
  int entry = 0;

  [[nodiscard]] std::string_view view() const noexcept { return {text.data(), text.size()}; }
};

/// @throws Error{invalid_argument} naming source, line and column of a position in the text.
[[noreturn]] void fail(Module const& module, std::size_t position, std::string const& what);

/// @throws Error{invalid_argument} with line and column: what is no HLO text, unknown element types, operands that are
/// not defined above, shapes of more than 2^62 bytes, nesting deeper than 64. Unknown opcodes and attributes are kept.
[[nodiscard]] Module parse_module(std::string const& text, std::string source);

/// The value of an attribute; empty where there is none of that name.
[[nodiscard]] std::optional<std::string_view> find(std::vector<Attribute> const& attributes, std::string_view name);
[[nodiscard]] inline std::optional<std::string_view> find(Instruction const& instruction, std::string_view name) {
  return find(instruction.attributes, name);
}

}  // namespace weft::hlo
