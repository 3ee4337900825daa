#include "importers/hlo/flow.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "importers/hlo/attributes.hpp"

namespace weft::hlo {
namespace {

/// Values that depend on constants alone, up to this many elements, are worked out before anything runs.
constexpr std::int64_t kMostFixedElements = 16384;

class Tracer {
 public:
  Tracer(Module const& module, Computation const& computation, int counter)
      : module_(module), computation_(computation), counter_(counter) {}

  Flow run() {
    auto const count = computation_.instructions.size();
    flow_.roles.resize(count);
    flow_.ranges.resize(count);
    for (std::size_t i = 0; i < count; ++i) trace(static_cast<int>(i));
    for (int const parameter : computation_.parameters) {
      auto const leaves = flow_.of(parameter);
      flow_.parameters.insert(flow_.parameters.end(), leaves.begin(), leaves.end());
    }
    return std::move(flow_);
  }

 private:
  [[nodiscard]] Instruction const& at(int index) const {
    return computation_.instructions[static_cast<std::size_t>(index)];
  }
  [[noreturn]] void refuse(int index, std::string const& what) const {
    fail(module_, at(index).position, fmt::format("{} {}: {}", at(index).opcode, at(index).name, what));
  }

  void trace(int index) {
    auto const& here = at(index);
    Role& role = flow_.roles[static_cast<std::size_t>(index)];
    role = role_of(module_, computation_, here);
    if (here.opcode == "tuple") return tuple(index);
    if (here.opcode == "get-tuple-element") return element(index);
    if (role == Role::view) {
      if (at(here.operands.front()).shape.bytes != here.shape.bytes)
        refuse(index, "it has other bytes than its operand");
      ++flow_.views;
      return share(index, here.operands.front(), 0);
    }
    if (role == Role::done) return done(index);
    make_slots(index);
    if (here.opcode == "parameter") return parameter(index);
    bool const fixed = role == Role::nothing || (role == Role::pointwise && is_fixed(index));
    if (!fixed) return;
    for (int const slot : flow_.of(index)) flow_.slots[static_cast<std::size_t>(slot)].fixed = true;
    if (role != Role::nothing) ++flow_.views;
    role = Role::nothing;
  }

  [[nodiscard]] bool is_fixed(int index) const {
    auto const& here = at(index);
    if (here.shape.elements > kMostFixedElements) return false;
    return std::all_of(here.operands.begin(), here.operands.end(), [&](int operand) {
      auto const slots = flow_.of(operand);
      return std::all_of(slots.begin(), slots.end(),
                         [&](int slot) { return flow_.slots[static_cast<std::size_t>(slot)].fixed; });
    });
  }

  void parameter(int index) {
    auto const slots = flow_.of(index);
    for (int const slot : slots) flow_.slots[static_cast<std::size_t>(slot)].made_by = -1;
    auto const& shape = at(index).shape;
    if (at(index).parameter != 0 || counter_ < 0 || static_cast<std::size_t>(counter_) >= shape.parts.size()) return;
    auto const leaf = static_cast<std::size_t>(shape.parts[static_cast<std::size_t>(counter_)].first_leaf);
    if (leaf < slots.size()) flow_.slots[static_cast<std::size_t>(slots[leaf])].fixed = true;
  }

  void tuple(int index) {
    auto const first = flow_.pool.size();
    for (int const operand : at(index).operands) {
      auto const& range = flow_.ranges[static_cast<std::size_t>(operand)];
      if (flow_.pool.size() - first + static_cast<std::size_t>(range.count) >
          static_cast<std::size_t>(at(index).shape.leaves)) {
        refuse(index, "more operands than its shape has parts");
      }
      for (int i = 0; i < range.count; ++i) flow_.pool.push_back(flow_.pool[range.first + static_cast<std::size_t>(i)]);
    }
    auto const count = static_cast<int>(flow_.pool.size() - first);
    if (count != at(index).shape.leaves) refuse(index, "fewer operands than its shape has parts");
    flow_.ranges[static_cast<std::size_t>(index)] = {first, count};
  }

  void element(int index) {
    auto const& here = at(index);
    auto const number = integer(module_, here, "index");
    if (here.operands.size() != 1 || !number) refuse(index, "it needs an operand and an index");
    auto const& parts = at(here.operands.front()).shape.parts;
    if (*number < 0 || static_cast<std::size_t>(*number) >= parts.size()) {
      refuse(index, fmt::format("index {} of a tuple of {}", *number, parts.size()));
    }
    share(index, here.operands.front(), parts[static_cast<std::size_t>(*number)].first_leaf);
  }

  /// The result of an asynchronous start: the part after its operands, or all of it.
  void done(int index) {
    ++flow_.views;
    auto const& start = at(at(index).operands.front());
    int operands = 0;
    for (int const operand : start.operands) operands += at(operand).shape.leaves;
    bool const has_operands = start.shape.leaves >= operands + at(index).shape.leaves;
    share(index, at(index).operands.front(), has_operands ? operands : 0);
  }

  void share(int index, int with, int first_leaf) {
    auto const range = flow_.ranges[static_cast<std::size_t>(with)];
    int const count = at(index).shape.leaves;
    if (first_leaf + count > range.count) refuse(index, "its shape is not that of its operand's part");
    flow_.ranges[static_cast<std::size_t>(index)] = {range.first + static_cast<std::size_t>(first_leaf), count};
  }

  void make_slots(int index) {
    auto const first = flow_.pool.size();
    make_slots(index, at(index).shape);
    flow_.ranges[static_cast<std::size_t>(index)] = {first, static_cast<int>(flow_.pool.size() - first)};
  }

  void make_slots(int index, Shape const& shape) {
    if (!shape.is_tuple) {
      flow_.pool.push_back(static_cast<int>(flow_.slots.size()));
      bool const is_token = shape.type == "token";
      flow_.slots.push_back({.made_by = index, .bytes = shape.bytes, .elements = shape.elements, .fixed = is_token});
    }
    for (auto const& part : shape.parts) make_slots(index, part);
  }

  Module const& module_;
  Computation const& computation_;
  int counter_;
  Flow flow_;
};

}  // namespace

Flow trace_flow(Module const& module, Computation const& computation, int counter) {
  return Tracer(module, computation, counter).run();
}

}  // namespace weft::hlo
