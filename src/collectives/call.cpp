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
    case Operation::reduce: return "reduce";
    case Operation::gather: return "gather";
    case Operation::scatter: return "scatter";
    case Operation::all_to_all: return "all_to_all";
    case Operation::scan: return "scan";
    case Operation::exscan: return "exscan";
    case Operation::all_gather_v: return "all_gather_v";
    case Operation::reduce_scatter_v: return "reduce_scatter_v";
    case Operation::gather_v: return "gather_v";
    case Operation::scatter_v: return "scatter_v";
    case Operation::all_to_all_v: return "all_to_all_v";
    case Operation::send: return "send";
    case Operation::receive: return "recv";
    case Operation::send_receive: return "send_recv";
  }
  return "unknown operation";
}

namespace {

/// "sum"; user functions are told apart by their fingerprints.
std::string name_reduction(Contract const& contract) {
  auto const name = to_string(contract.reduce);
  return contract.reduce == ReduceOp::user ? fmt::format("{} {:02x}", name, contract.variant) : std::string(name);
}

}  // namespace

std::string describe(Contract const& contract) {
  auto const name = to_string(contract.operation);
  auto const elements = fmt::format("{} × {}", contract.count, to_string(contract.dtype));
  auto const shape =
      contract.pieces == 0 ? elements : fmt::format("{} in all of a group {:08x}", elements, contract.pieces);
  switch (contract.operation) {
    case Operation::barrier: return "barrier()";
    case Operation::broadcast:
    case Operation::gather:
    case Operation::scatter: return fmt::format("{}({}, root {})", name, shape, contract.root);
    case Operation::reduce:
      return fmt::format("{}({}, {}, root {})", name, shape, name_reduction(contract), contract.root);
    case Operation::gather_v:
    case Operation::scatter_v: return fmt::format("{}({}, root {})", name, to_string(contract.dtype), contract.root);
    case Operation::all_to_all_v: return fmt::format("{}({})", name, to_string(contract.dtype));
    case Operation::send: return fmt::format("{}({}, to rank {})", name, shape, contract.root);
    case Operation::receive: return fmt::format("{}({}, from rank {})", name, shape, contract.root);
    case Operation::all_gather_v: return fmt::format("{}({} in parts {:08x})", name, shape, contract.root);
    case Operation::reduce_scatter_v:
      return fmt::format("{}({} in parts {:08x}, {})", name, shape, contract.root, name_reduction(contract));
    case Operation::scan:
    case Operation::exscan:
    case Operation::reduce_scatter:
    case Operation::all_reduce: return fmt::format("{}({}, {})", name, shape, name_reduction(contract));
    default: return fmt::format("{}({})", name, shape);
  }
}

std::string describe(Call const& call) {
  return fmt::format("{}, {}call {}", describe(call.contract),
                     is_point_to_point(call.contract.operation) ? "point-to-point " : "", call.sequence);
}

void Call::own_parts() {
  if (send_parts.counts.empty() && recv_parts.counts.empty()) return;
  auto const spans = {&send_parts.counts, &send_parts.offsets, &recv_parts.counts, &recv_parts.offsets};
  parts_storage = std::make_shared<std::vector<std::size_t>>();
  for (auto const* span : spans) parts_storage->insert(parts_storage->end(), span->begin(), span->end());
  std::size_t next = 0;
  for (auto* span : {&send_parts.counts, &send_parts.offsets, &recv_parts.counts, &recv_parts.offsets}) {
    *span = std::span<std::size_t const>(parts_storage->data() + next, span->size());
    next += span->size();
  }
}

ByteRange Call::part(Parts const& parts, int rank) const noexcept {
  auto const r = static_cast<std::size_t>(rank);
  if (parts.counts.empty()) return {r * bytes(), bytes()};
  auto const element = size_of(contract.dtype);
  std::size_t offset = 0;
  if (parts.offsets.empty()) {
    for (std::size_t i = 0; i < r; ++i) offset += parts.counts[i];
  } else {
    offset = parts.offsets[r];
  }
  return {offset * element, parts.counts[r] * element};
}

}  // namespace weft
