#include "collectives/call.hpp"

#include <fmt/format.h>

namespace weft {

std::string_view to_string(Operation operation) noexcept {
  switch (operation) {
    case Operation::barrier: return "barrier";
    case Operation::broadcast: return "broadcast";
    case Operation::all_gather: return "all_gather";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_reduce: return "all_reduce";
    case Operation::allocate: return "allocate";
  }
  return "unknown operation";
}

std::string describe(Contract const& contract) {
  auto const name = to_string(contract.operation);
  auto const shape = fmt::format("{} × {}", contract.count, to_string(contract.dtype));
  switch (contract.operation) {
    case Operation::barrier: return "barrier()";
    case Operation::broadcast: return fmt::format("{}({}, root {})", name, shape, contract.root);
    case Operation::reduce_scatter:
    case Operation::all_reduce: return fmt::format("{}({}, {})", name, shape, to_string(contract.reduce));
    default: return fmt::format("{}({})", name, shape);
  }
}

std::string describe(Call const& call) {
  return fmt::format("{}, call {}", describe(call.contract), call.sequence);
}

}  // namespace weft
