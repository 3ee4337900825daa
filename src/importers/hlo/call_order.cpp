#include "importers/hlo/call_order.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "importers/hlo/attributes.hpp"
#include "importers/hlo/opcodes.hpp"

namespace weft::hlo {
namespace {

constexpr int kDeepestCall = 64;

class Walk {
 public:
  explicit Walk(Module const& module) : module_(module), state_(module.computations.size()) {}

  std::vector<int> run() {
    visit(module_.entry, 0);
    return std::move(order_);
  }

 private:
  enum class State : unsigned char { unseen, open, done };

  void visit(int index, int depth) {
    state_[static_cast<std::size_t>(index)] = State::open;
    for (auto const& instruction : module_.computations[static_cast<std::size_t>(index)].instructions) {
      for (int const callee : callees(module_, instruction)) {
        auto const state = state_[static_cast<std::size_t>(callee)];
        if (state == State::open) {
          fail(module_, instruction.position, fmt::format("{}: a computation that calls itself", instruction.name));
        }
        if (state == State::done) continue;
        if (depth >= kDeepestCall) {
          fail(module_, instruction.position, fmt::format("calls nested deeper than {}", kDeepestCall));
        }
        visit(callee, depth + 1);
      }
    }
    state_[static_cast<std::size_t>(index)] = State::done;
    order_.push_back(index);
  }

  Module const& module_;
  std::vector<State> state_;
  std::vector<int> order_;
};

}  // namespace

std::vector<int> callees(Module const& module, Instruction const& instruction) {
  std::string_view const opcode = instruction.opcode;
  if (opcode == "while") return computations(module, instruction, "body");
  if (opcode == "call") return computations(module, instruction, "to_apply");
  if (opcode == "fusion" || opcode == "async-start") return computations(module, instruction, "calls");
  if (opcode != "conditional") return {};
  auto found = computations(module, instruction, "branch_computations");
  for (auto const* const name : {"true_computation", "false_computation"}) {
    auto const more = computations(module, instruction, name);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

std::vector<int> call_order(Module const& module) {
  return Walk(module).run();
}

}  // namespace weft::hlo
