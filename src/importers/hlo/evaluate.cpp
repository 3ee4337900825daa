#include "importers/hlo/evaluate.hpp"

#include <array>
#include <charconv>
#include <unordered_map>

#include "importers/hlo/attributes.hpp"

namespace weft::hlo {
namespace {

using Value = std::optional<std::int64_t>;

class Evaluation {
 public:
  Evaluation(Module const& module, Computation const& computation, Known const& known)
      : module_(module), computation_(computation), known_(known) {}

  /// Evaluates for this rank from here on.
  void set_rank(std::int64_t rank) {
    known_.rank = rank;
    steps_ = 0;
  }

  Value of(int index) {
    constexpr int kMostSteps = 128;
    if (++steps_ > kMostSteps) return std::nullopt;
    auto const& at = instruction(index);
    if (at.shape.is_tuple || at.shape.elements != 1) return std::nullopt;
    if (at.opcode == "constant") return first_number(at.literal);
    if (at.opcode == "partition-id") return known_.rank;
    if (at.opcode == "get-tuple-element") return bound(at);
    if (at.operands.empty()) return std::nullopt;
    if (at.opcode == "dynamic-slice") return from_table(at);
    if (at.opcode == "select") return select(at);
    static constexpr std::array kSame{"copy", "convert", "reshape", "bitcast", "broadcast", "transpose", "slice"};
    for (auto const* const same : kSame) {
      if (at.opcode == same) return of(at.operands.front());
    }
    return binary(at);
  }

 private:
  [[nodiscard]] Instruction const& instruction(int index) const {
    return computation_.instructions[static_cast<std::size_t>(index)];
  }

  /// The number that "{3, 5}" or "3" begins with.
  static Value first_number(std::string_view literal) {
    auto const start = literal.find_first_not_of("{ \n");
    if (start == std::string_view::npos) return std::nullopt;
    literal.remove_prefix(start);
    if (literal.starts_with("true")) return 1;
    if (literal.starts_with("false")) return 0;
    std::int64_t value = 0;
    auto const [end, error] = std::from_chars(literal.data(), literal.data() + literal.size(), value);
    if (error != std::errc{}) return std::nullopt;
    bool const whole = end == literal.data() + literal.size() || (*end != '.' && *end != 'e');
    return whole ? Value(value) : std::nullopt;
  }

  std::vector<Value> const& table_of(int index) {
    auto const [found, is_new] = tables_.try_emplace(index);
    if (!is_new) return found->second;
    auto literal = instruction(index).literal;
    for (auto comma = literal.find(','); comma != std::string_view::npos; comma = literal.find(',')) {
      found->second.push_back(first_number(literal));
      literal.remove_prefix(comma + 1);
    }
    found->second.push_back(first_number(literal));
    return found->second;
  }

  Value bound(Instruction const& at) const {
    if (known_.bound < 0 || at.operands.empty() || instruction(at.operands.front()).opcode != "parameter") {
      return std::nullopt;
    }
    if (integer(module_, at, "index") != known_.bound) return std::nullopt;
    return known_.value;
  }

  Value from_table(Instruction const& at) {
    auto const& table = instruction(at.operands.front());
    if (table.opcode != "constant" || at.operands.size() != 2 || table.shape.dims.size() != 1) return std::nullopt;
    auto const index = of(at.operands[1]);
    if (!index || *index < 0) return std::nullopt;
    auto const& numbers = table_of(at.operands.front());
    return static_cast<std::size_t>(*index) < numbers.size() ? numbers[static_cast<std::size_t>(*index)] : std::nullopt;
  }

  Value select(Instruction const& at) {
    if (at.operands.size() != 3) return std::nullopt;
    auto const which = of(at.operands[0]);
    if (!which) return std::nullopt;
    return of(at.operands[*which != 0 ? 1 : 2]);
  }

  Value binary(Instruction const& at) {
    if (at.operands.size() != 2) return std::nullopt;
    auto const a = of(at.operands[0]);
    auto const b = of(at.operands[1]);
    if (!a || !b) return std::nullopt;
    std::int64_t value = 0;
    if (at.opcode == "add") return __builtin_add_overflow(*a, *b, &value) ? Value{} : value;
    if (at.opcode == "subtract") return __builtin_sub_overflow(*a, *b, &value) ? Value{} : value;
    if (at.opcode == "multiply") return __builtin_mul_overflow(*a, *b, &value) ? Value{} : value;
    if (at.opcode == "divide" && *b > 0) return *a / *b;
    if (at.opcode == "remainder" && *b > 0) return *a % *b;
    if (at.opcode == "and") return *a & *b;
    if (at.opcode == "minimum") return *a < *b ? *a : *b;
    if (at.opcode == "maximum") return *a < *b ? *b : *a;
    return at.opcode == "compare" ? compare(at, *a, *b) : std::nullopt;
  }

  static Value compare(Instruction const& at, std::int64_t a, std::int64_t b) {
    auto const direction = find(at, "direction").value_or("");
    if (direction == "LT") return a < b;
    if (direction == "LE") return a <= b;
    if (direction == "GT") return a > b;
    if (direction == "GE") return a >= b;
    if (direction == "EQ") return a == b;
    if (direction == "NE") return a != b;
    return std::nullopt;
  }

  Module const& module_;
  Computation const& computation_;
  Known known_;
  std::unordered_map<int, std::vector<Value>> tables_;  ///< constants that were used as tables
  int steps_ = 0;
};

}  // namespace

std::optional<std::int64_t> evaluate(Module const& module, Computation const& computation, int instruction,
                                     Known const& known) {
  return Evaluation(module, computation, known).of(instruction);
}

std::vector<std::int64_t> evaluate_by_rank(Module const& module, Computation const& computation, int instruction,
                                           int ranks) {
  std::vector<std::int64_t> values;
  Evaluation evaluation(module, computation, {});
  for (int rank = 0; rank < ranks; ++rank) {
    evaluation.set_rank(rank);
    auto const value = evaluation.of(instruction);
    if (!value) break;
    values.push_back(*value);
  }
  return values;
}

}  // namespace weft::hlo
