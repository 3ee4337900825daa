#include "importers/hlo/trip_count.hpp"

#include <charconv>
#include <cstdint>

#include "importers/hlo/attributes.hpp"
#include "importers/hlo/evaluate.hpp"

namespace weft::hlo {
namespace {

Instruction const& at(Computation const& computation, int index) {
  return computation.instructions[static_cast<std::size_t>(index)];
}

Computation const* callee(Module const& module, Instruction const& loop, std::string_view name) {
  auto const found = computations(module, loop, name);
  return found.size() == 1 ? &module.computations[static_cast<std::size_t>(found.front())] : nullptr;
}

/// The element of the computation's parameter that an instruction stands for, through copies.
int element_of_parameter(Module const& module, Computation const& computation, int index) {
  for (int hops = 0; hops < 16; ++hops) {
    auto const& here = at(computation, index);
    if (here.operands.empty()) return -1;
    if (here.opcode == "get-tuple-element") {
      if (at(computation, here.operands.front()).opcode != "parameter") return -1;
      return static_cast<int>(integer(module, here, "index").value_or(-1));
    }
    if (here.opcode != "copy" && here.opcode != "convert" && here.opcode != "bitcast") return -1;
    index = here.operands.front();
  }
  return -1;
}

struct Condition {
  int element = -1;
  std::int64_t limit = 0;
  std::string_view direction{};
};

std::string_view turned(std::string_view direction) {
  if (direction == "LT") return "GT";
  if (direction == "GT") return "LT";
  if (direction == "LE") return "GE";
  if (direction == "GE") return "LE";
  return direction;
}

std::optional<Condition> read_condition(Module const& module, Computation const& condition) {
  auto const& root = at(condition, condition.root);
  if (root.opcode != "compare" || root.operands.size() != 2) return std::nullopt;
  auto const direction = find(root, "direction").value_or("");
  for (std::size_t side = 0; side < 2; ++side) {
    int const element = element_of_parameter(module, condition, root.operands[side]);
    auto const limit = evaluate(module, condition, root.operands[1 - side], {});
    if (element >= 0 && limit) return Condition{element, *limit, side == 0 ? direction : turned(direction)};
  }
  return std::nullopt;
}

std::optional<std::int64_t> count(Condition const& condition, std::int64_t first, std::int64_t step) {
  std::int64_t distance = 0;
  if (step == INT64_MIN || __builtin_sub_overflow(condition.limit, first, &distance)) return std::nullopt;
  if (distance == INT64_MIN || distance == INT64_MAX) return std::nullopt;
  bool const down = condition.direction == "GT" || condition.direction == "GE";
  if (down || (condition.direction == "NE" && step < 0)) {
    distance = -distance;
    step = -step;
  }
  if (condition.direction == "NE") {
    if (step == 0 || distance < 0 || distance % step != 0) return std::nullopt;
  } else if (condition.direction == "LE" || condition.direction == "GE") {
    distance += 1;
  } else if (condition.direction != "LT" && condition.direction != "GT") {
    return std::nullopt;
  }
  if (distance <= 0) return 0;
  if (step <= 0) return std::nullopt;  // never ends
  return distance / step + (distance % step != 0);
}

/// "known_trip_count":{"n":"126"}
std::optional<std::int64_t> known_count(Instruction const& loop) {
  auto const config = find(loop, "backend_config").value_or("");
  auto const at = config.find("known_trip_count");
  if (at == std::string_view::npos) return std::nullopt;
  auto const digits = config.find_first_of("0123456789", at);
  if (digits == std::string_view::npos) return std::nullopt;
  std::int64_t value = 0;
  if (std::from_chars(config.data() + digits, config.data() + config.size(), value).ec != std::errc{})
    return std::nullopt;
  return value;
}

std::optional<int> body_element(Module const& module, Instruction const& loop, int element) {
  auto const* const body = callee(module, loop, "body");
  if (body == nullptr) return std::nullopt;
  auto const& root = at(*body, body->root);
  if (root.opcode != "tuple" || static_cast<std::size_t>(element) >= root.operands.size()) return std::nullopt;
  return root.operands[static_cast<std::size_t>(element)];
}

}  // namespace

std::optional<Counter> find_counter(Module const& module, Instruction const& loop) {
  auto const* const condition = callee(module, loop, "condition");
  auto const* const body = callee(module, loop, "body");
  if (condition == nullptr || body == nullptr) return std::nullopt;
  auto const compared = read_condition(module, *condition);
  if (!compared) return std::nullopt;
  auto const next = body_element(module, loop, compared->element);
  if (!next) return std::nullopt;
  auto const after_0 = evaluate(module, *body, *next, {.rank = {}, .bound = compared->element, .value = 0});
  auto const after_1 = evaluate(module, *body, *next, {.rank = {}, .bound = compared->element, .value = 1});
  if (!after_0 || !after_1 || *after_1 != *after_0 + 1) return std::nullopt;
  return Counter{compared->element, *after_0};
}

std::optional<std::int64_t> first_count(Module const& module, Computation const& computation, Instruction const& loop,
                                        Counter const& counter) {
  if (loop.operands.size() != 1) return std::nullopt;
  auto const& init = at(computation, loop.operands.front());
  if (init.opcode != "tuple" || static_cast<std::size_t>(counter.element) >= init.operands.size()) return std::nullopt;
  return evaluate(module, computation, init.operands[static_cast<std::size_t>(counter.element)], {});
}

std::optional<std::int64_t> trip_count(Module const& module, Computation const& computation, Instruction const& loop) {
  if (auto const known = known_count(loop)) return known;
  auto const counter = find_counter(module, loop);
  if (!counter) return std::nullopt;
  auto const first = first_count(module, computation, loop, *counter);
  if (!first) return std::nullopt;
  auto const condition = read_condition(module, *callee(module, loop, "condition"));
  return count(*condition, *first, counter->step);
}

}  // namespace weft::hlo
