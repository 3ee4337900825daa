#include "collectives/merged_call.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "core/cache_line.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

bool same_kind(Call const& a, Call const& b) noexcept {
  auto const& x = a.contract;
  auto const& y = b.contract;
  return x.operation == y.operation && x.dtype == y.dtype && x.reduce == y.reduce && x.root == y.root;
}

std::size_t ranks_times(bool parts, std::size_t size) noexcept {
  return parts ? size : 1;
}

/// Copies part `part` of all pieces to where they lie in a merged call's unit. Clears the gaps: whoever combines or
/// rounds the unit must not find values there that have an effect, such as infinities of an earlier call.
void gather_unit(MergedCall const& merged, std::size_t part, std::size_t unit, std::byte* to) {
  std::size_t end = 0;
  for (auto const& piece : merged.pieces()) {
    std::memset(to + end, 0, piece.offset - end);
    end = piece.offset + piece.bytes;
    if (piece.bytes == 0) continue;
    std::memcpy(to + piece.offset, static_cast<std::byte const*>(piece.send) + part * piece.bytes, piece.bytes);
  }
  std::memset(to + end, 0, unit - end);
}

}  // namespace

Shape shape_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::reduce_scatter:
    case Operation::scatter: return {true, false};
    case Operation::all_gather:
    case Operation::gather: return {false, true};
    case Operation::all_to_all: return {true, true};
    default: return {};
  }
}

MergedCall::MergedCall(Call&& first, Run operation, MergeLimits const& limits, std::uint32_t number)
    : call_(std::move(first)), run_(operation), limits_(limits), element_(size_of(call_.contract.dtype)) {
  add(call_, number);
}

bool MergedCall::merges(Call const& call) noexcept {
  if (call.contract.tag() != 0) return false;  // the contract of merged calls has no room for a tag
  switch (call.contract.operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::scan:
    case Operation::exscan:
      // Each rank has scales and functions of its own, so ranks could decide differently what merges.
      return call.contract.reduce != ReduceOp::premul_sum && call.contract.reduce != ReduceOp::user;
    case Operation::broadcast:
    case Operation::all_gather:
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all:
    case Operation::barrier: return true;
    default: return false;
  }
}

bool MergedCall::is_open_to(Call const& next) const noexcept {
  return merges(next) && same_kind(call_, next) && pieces_.front().bytes <= limits_.each;
}

void MergedCall::add(Call const& next, std::uint32_t number) {
  add(next.send, next.recv, next.contract.count, number);
  call_.timeout = std::max(call_.timeout, next.timeout);
}

void MergedCall::close() noexcept {
  if (pieces_.size() == 1) return;
  call_.contract.count = elements_;
  call_.contract.group = {.elements = elements_,
                          .sizes = static_cast<std::uint32_t>(sizes_ >> 32U),
                          .calls = static_cast<std::uint16_t>(pieces_.size())};
  call_.send = nullptr;
  call_.recv = nullptr;
  call_.feedback = nullptr;  // it belongs to the first call alone
}

void MergedCall::run(Backend& backend) const {
  if (pieces_.size() == 1 || call_.contract.operation == Operation::barrier) return (backend.*run_)(call_);
  backend.merged(*this);
}

void run_flat(Backend& backend, MergedCall const& merged, int rank, int size, std::vector<std::byte>& scratch,
              std::function<void(Call const&)> const& run) {
  auto const& outer = merged.call();
  auto const& contract = outer.contract;
  auto const shape = merged.shape();
  auto const ranks = static_cast<std::size_t>(size);
  auto const unit = round_up_to_lines(merged.bytes());
  auto const send_units = ranks_times(shape.send_parts, ranks);
  auto const recv_units = ranks_times(shape.recv_parts, ranks);
  auto const in_place = !shape.send_parts && !shape.recv_parts;
  auto const units = send_units + (in_place ? 0 : recv_units);
  try {
    scratch.resize(std::max(scratch.size(), units * unit + kLine));
  } catch (std::bad_alloc const&) {
    auto const why = fmt::format("rank {}: {}: no memory for {} bytes to merge calls in; make the group smaller", rank,
                                 describe(outer), units * unit);
    backend.fail(ErrorCode::out_of_memory, why);
    throw Error(ErrorCode::out_of_memory, why);
  }
  auto* const send = scratch.data() + (kLine - reinterpret_cast<std::uintptr_t>(scratch.data()) % kLine) % kLine;
  auto* const recv = in_place ? send : send + send_units * unit;

  auto const is_root = outer.is_root(rank);
  auto const from_root = contract.operation == Operation::broadcast || contract.operation == Operation::scatter;
  auto const to_root = contract.operation == Operation::reduce || contract.operation == Operation::gather;
  if (!from_root || is_root) {
    for (std::size_t part = 0; part < send_units; ++part) gather_unit(merged, part, unit, send + part * unit);
  }
  Call flat = outer;
  flat.send = send;
  flat.recv = recv;
  flat.contract.count = unit / size_of(contract.dtype);
  run(flat);
  auto const left_alone = contract.operation == Operation::exscan && rank == 0;
  if ((to_root && !is_root) || left_alone) return;
  for (std::size_t part = 0; part < recv_units; ++part) {
    for (auto const& piece : merged.pieces()) {
      if (piece.bytes == 0) continue;
      std::memcpy(static_cast<std::byte*>(piece.recv) + part * piece.bytes, recv + part * unit + piece.offset,
                  piece.bytes);
    }
  }
}

}  // namespace weft
