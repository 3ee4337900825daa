#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "importers/hlo/cursor.hpp"
#include "weft/error.hpp"

namespace weft::hlo {
namespace {

/// Tables of places in the program's sources, which newer versions of XLA write behind the module's first line.
constexpr std::array<std::string_view, 4> kSourceTables{"FileNames", "FunctionNames", "FileLocations", "StackFrames"};

class Parser {
 public:
  explicit Parser(Module& module) : module_(module), cursor_(module) {}

  void run() {
    cursor_.skip_space();
    if (!cursor_.take("HloModule")) cursor_.fail("HLO text starts with \"HloModule\"");
    cursor_.skip_blanks();
    module_.name = cursor_.expect_word("the module's name");
    module_.attributes = attributes();
    bool has_entry = false;
    for (cursor_.skip_space(); !cursor_.at_end(); cursor_.skip_space()) {
      if (source_table()) continue;
      if (computation()) {
        if (has_entry) cursor_.fail("a second ENTRY computation");
        has_entry = true;
        module_.entry = static_cast<int>(module_.computations.size()) - 1;
      }
    }
    if (!has_entry) cursor_.fail("no ENTRY computation");
  }

 private:
  /// Skips a table, a title and numbered lines, if there is one.
  bool source_table() {
    auto const start = cursor_.position();
    bool const titled = std::find(kSourceTables.begin(), kSourceTables.end(), cursor_.word()) != kSourceTables.end();
    cursor_.skip_blanks();
    if (!titled || cursor_.peek() != '\n') {
      cursor_.seek(start);
      return false;
    }
    for (cursor_.skip_space(); cursor_.peek() >= '0' && cursor_.peek() <= '9'; cursor_.skip_space()) {
      cursor_.until("", true);
    }
    return true;
  }

  /// Reads a computation; true if it is the entry.
  bool computation() {
    bool const entry = cursor_.take("ENTRY ");
    cursor_.skip_space();
    cursor_.take('%');
    auto const start = cursor_.position();
    auto const name = cursor_.expect_word("a computation's name");
    header();
    if (!module_.by_name.emplace(name, static_cast<int>(module_.computations.size())).second) {
      fail(module_, start, fmt::format("a second computation {}", name));
    }
    module_.computations.push_back({.name = name, .instructions = {}, .root = -1, .parameters = {}});
    names_.clear();
    for (cursor_.skip_space(); !cursor_.take('}'); cursor_.skip_space()) instruction(module_.computations.back());
    finish(module_.computations.back(), start);
    return entry;
  }

  /// Skips parameters and result, as the instructions say them again.
  void header() {
    cursor_.skip_space();
    if (cursor_.take('(')) {
      cursor_.until(")", false);
      cursor_.expect(')');
      cursor_.skip_space();
      if (cursor_.take("->")) cursor_.shape();
    }
    cursor_.skip_space();
    if (cursor_.take(',')) cursor_.until("{", true);  // execution_thread
    cursor_.expect('{');
  }

  void instruction(Computation& computation) {
    if (cursor_.at_end()) cursor_.fail(fmt::format("{} does not end: '}}' is missing", computation.name));
    Instruction instruction;
    bool const root = cursor_.take("ROOT ");
    cursor_.skip_space();
    cursor_.take('%');
    instruction.position = cursor_.position();
    instruction.name = cursor_.expect_word("an instruction's name");
    cursor_.expect('=');
    instruction.shape = cursor_.shape();
    cursor_.skip_space();
    instruction.opcode = cursor_.expect_word("an opcode");
    cursor_.expect('(');
    arguments(computation, instruction);
    instruction.attributes = attributes();
    int const index = static_cast<int>(computation.instructions.size());
    if (!names_.emplace(instruction.name, index).second) {
      fail(module_, instruction.position, fmt::format("a second instruction {}", instruction.name));
    }
    if (root) {
      if (computation.root >= 0)
        fail(module_, instruction.position, fmt::format("{}: a second ROOT", computation.name));
      computation.root = index;
    }
    computation.instructions.push_back(std::move(instruction));
  }

  void arguments(Computation& computation, Instruction& instruction) {
    if (instruction.opcode == "constant") {
      instruction.literal = cursor_.until(")", false);
    } else if (instruction.opcode == "parameter") {
      cursor_.skip_space();
      instruction.parameter = cursor_.expect_integer("the parameter's number");
      parameter(computation, instruction);
    } else {
      operands(instruction);
    }
    cursor_.expect(')');
  }

  void operands(Instruction& instruction) {
    for (cursor_.skip_space(); cursor_.peek() != ')'; cursor_.skip_space()) {
      if (!instruction.operands.empty()) cursor_.expect(',');
      cursor_.skip_space();
      auto start = cursor_.position();
      if (cursor_.peek() == '(') {
        cursor_.shape();
        cursor_.skip_space();
      } else if (cursor_.peek() != '%') {
        cursor_.word();
        bool const has_shape = cursor_.peek() == '[';
        cursor_.seek(start);
        if (has_shape) {
          cursor_.shape();
          cursor_.skip_space();
        }
      }
      cursor_.take('%');
      start = cursor_.position();
      auto const name = cursor_.expect_word("an operand");
      auto const found = names_.find(name);
      if (found == names_.end()) fail(module_, start, fmt::format("operand {} is not defined above", name));
      instruction.operands.push_back(found->second);
    }
  }

  void parameter(Computation& computation, Instruction const& instruction) {
    constexpr std::int64_t kMost = 1 << 20;
    if (instruction.parameter < 0 || instruction.parameter >= kMost) {
      cursor_.fail(fmt::format("parameter({}): numbers go from 0 to {}", instruction.parameter, kMost - 1));
    }
    auto const number = static_cast<std::size_t>(instruction.parameter);
    if (computation.parameters.size() <= number) computation.parameters.resize(number + 1, -1);
    if (computation.parameters[number] >= 0) cursor_.fail(fmt::format("a second parameter({})", number));
    computation.parameters[number] = static_cast<int>(computation.instructions.size());
  }

  std::vector<Attribute> attributes() {
    std::vector<Attribute> found;
    for (cursor_.skip_blanks(); cursor_.take(','); cursor_.skip_blanks()) {
      cursor_.skip_space();
      Attribute attribute;
      attribute.name = cursor_.expect_word("an attribute's name");
      cursor_.skip_blanks();
      cursor_.expect('=');
      cursor_.skip_blanks();
      attribute.value = cursor_.until(",", true);
      found.push_back(attribute);
    }
    cursor_.skip_blanks();
    if (!cursor_.at_end() && cursor_.peek() != '\n' && cursor_.peek() != '}') cursor_.fail("expected the line's end");
    return found;
  }

  void finish(Computation& computation, std::size_t start) {
    if (computation.instructions.empty()) fail(module_, start, fmt::format("{} has no instructions", computation.name));
    if (computation.root < 0) computation.root = static_cast<int>(computation.instructions.size()) - 1;
    auto const missing = std::find(computation.parameters.begin(), computation.parameters.end(), -1);
    if (missing != computation.parameters.end()) {
      fail(module_, start,
           fmt::format("{} has no parameter({})", computation.name, missing - computation.parameters.begin()));
    }
  }

  Module& module_;
  Cursor cursor_;
  std::unordered_map<std::string_view, int> names_;
};

}  // namespace

void fail(Module const& module, std::size_t position, std::string const& what) {
  auto const before = module.view().substr(0, position);
  auto const line = 1 + std::count(before.begin(), before.end(), '\n');
  auto const column = position - (before.rfind('\n') + 1) + 1;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}:{}:{}: {}", module.source, line, column, what));
}

std::optional<std::string_view> find(std::vector<Attribute> const& attributes, std::string_view name) {
  auto const found = std::find_if(attributes.begin(), attributes.end(), [&](auto const& a) { return a.name == name; });
  if (found == attributes.end()) return std::nullopt;
  return found->value;
}

Module parse_module(std::string const& text, std::string source) {
  Module module;
  module.source = std::move(source);
  module.text.assign(text.begin(), text.end());
  Parser(module).run();
  return module;
}

}  // namespace weft::hlo
