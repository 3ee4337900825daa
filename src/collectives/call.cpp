#include "collectives/call.hpp"

#include <fmt/format.h>

#include "collectives/user_names.hpp"

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

std::string name_reduction(Contract const& contract) {
  return contract.reduce == ReduceOp::user ? describe_user(contract.variant) : std::string(to_string(contract.reduce));
}

/// The arguments but for the tag: `shape`, such as "1024 × f32", with the reduction or root added.
std::string name_untagged_arguments(Contract const& contract, std::string const& shape) {
  switch (contract.operation) {
    case Operation::barrier: return {};
    case Operation::broadcast:
    case Operation::gather:
    case Operation::scatter: return fmt::format("{}, root {}", shape, contract.root);
    case Operation::reduce: return fmt::format("{}, {}, root {}", shape, name_reduction(contract), contract.root);
    case Operation::gather_v:
    case Operation::scatter_v: return fmt::format("{}, root {}", to_string(contract.dtype), contract.root);
    case Operation::all_to_all_v: return std::string(to_string(contract.dtype));
    case Operation::send: return fmt::format("{}, to rank {}", shape, contract.root);
    case Operation::receive: return fmt::format("{}, from rank {}", shape, contract.root);
    case Operation::all_gather_v: return fmt::format("{} in parts {:08x}", shape, contract.root);
    case Operation::reduce_scatter_v:
      return fmt::format("{} in parts {:08x}, {}", shape, contract.root, name_reduction(contract));
    case Operation::scan:
    case Operation::exscan:
    case Operation::reduce_scatter:
    case Operation::all_reduce: return fmt::format("{}, {}", shape, name_reduction(contract));
    default: return shape;
  }
}

std::string name_arguments(Contract const& contract, std::string const& shape) {
  auto arguments = name_untagged_arguments(contract, shape);
  if (contract.tag() == 0) return arguments;
  if (contract.tag() == kMakingCommunicator) return arguments + ", of a split, duplicate or connect";
  return fmt::format("{}{}tag {}", arguments, arguments.empty() ? "" : ", ", contract.tag());
}

std::string describe(Contract const& contract, bool with_sizes) {
  auto const name = to_string(contract.operation);
  auto const& group = contract.group;
  auto const elements =
      fmt::format("{} × {}", group.calls != 0 ? group.elements : contract.count, to_string(contract.dtype));
  if (group.calls == 0) return fmt::format("{}({})", name, name_arguments(contract, elements));
  auto const arguments = name_arguments(contract, elements + " in all");
  if (arguments.empty()) return fmt::format("group of {} {} calls", group.calls, name);
  return fmt::format("group of {} {} calls ({}{})", group.calls, name, arguments,
                     with_sizes ? fmt::format(", sizes {:08x}", group.sizes) : "");
}

}  // namespace

void PackedContract::pack(Contract::Group const& group) noexcept {
  count = group.elements | (std::uint64_t{group.sizes} >> 24U << 40U) | (std::uint64_t{group.calls} << kCountBits);
  rest |= (group.sizes & 0xffffU) << 16U | (std::uint64_t{group.sizes} >> 16U & 0xffU) << 56U;
}

Contract PackedContract::unpack() const noexcept {
  Contract contract{.count = count,
                    .root = static_cast<std::uint32_t>(rest),
                    .operation = static_cast<Operation>(rest >> 40U & 0xffU),
                    .dtype = static_cast<DataType>(rest >> 32U & 0xffU),
                    .reduce = static_cast<ReduceOp>(rest >> 48U & 0xffU),
                    .variant = static_cast<std::uint8_t>(rest >> 56U)};
  auto& group = contract.group;
  group.calls = static_cast<std::uint16_t>(count >> kCountBits);
  if (group.calls == 0) return contract;
  group.elements = count & ((std::uint64_t{1} << 40U) - 1);
  group.sizes = static_cast<std::uint32_t>(count >> 40U & 0xffU) << 24U | std::uint32_t{contract.variant} << 16U |
                contract.root >> 16U;
  contract.count = group.elements;
  contract.root &= 0xffffU;
  contract.variant = 0;
  return contract;
}

std::string describe(Contract const& contract) {
  return describe(contract, true);
}

std::string describe(Call const& call) {
  if (auto const* const whole = call.within) {
    auto const is_all = whole->contract.operation == call.contract.operation && whole->bytes() == call.bytes();
    return is_all ? describe(*whole) : fmt::format("{}, in its {}", describe(*whole), describe(call.contract, false));
  }
  return fmt::format("{}, {}call {}", describe(call.contract, false),
                     is_point_to_point(call.contract.operation) ? "point-to-point " : "", call.sequence);
}

std::string describe_mismatch(std::uint64_t sequence, int rank, Contract const& mine, int peer,
                              Contract const& theirs) {
  auto const look_alike = mine.group.calls != 0 && describe(mine, false) == describe(theirs, false);
  return fmt::format("call {} differs between ranks: rank {} made {}, rank {} made {}{}; make the calls equal",
                     sequence, rank, describe(mine, look_alike), peer, describe(theirs, look_alike),
                     look_alike ? " (as much in all, but the sizes of the group's calls or their order differ)" : "");
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
