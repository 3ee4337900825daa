// Calls whose buffers travel in the announcement: in ⌈log2 n⌉ steps every rank gets every rank's send buffer, or only
// the root's, and takes what it needs from it. With send buffers of S bytes, each rank sends (n − 1)·S.
#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/ucx/ucx_backend.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::ucx {
namespace {

using p2p::at;

bool has_scales(Call const& call) noexcept {
  return call.contract.reduce == ReduceOp::premul_sum;
}

/// How many parts a send buffer consists of.
std::size_t sent_parts(Operation operation, std::size_t ranks) noexcept {
  switch (operation) {
    case Operation::reduce_scatter:
    case Operation::scatter:
    case Operation::all_to_all: return ranks;
    case Operation::barrier: return 0;
    default: return 1;
  }
}

bool only_root_sends(Operation operation) noexcept {
  return operation == Operation::broadcast || operation == Operation::scatter;
}

bool combines(Operation operation) noexcept {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter || operation == Operation::scan || operation == Operation::exscan;
}

}  // namespace

bool UcxBackend::is_small(Call const& call, double others_s) const noexcept {
  auto const operation = call.contract.operation;
  if (operation == Operation::barrier || size() == 1) return operation == Operation::barrier;
  if (has_unequal_parts(operation)) return false;
  if (combines(operation)) {
    // Only this path can reduce in the order of hosts; callers make sure that such reductions are small.
    if (hosts_.applies_to(call.contract.dtype, call.contract.reduce) && operation != Operation::scan &&
        operation != Operation::exscan) {
      return true;
    }
    if (ranks() > kernels::kFewSources) return false;
  }
  auto const sent = call.bytes() * sent_parts(operation, ranks()) + (has_scales(call) ? sizeof call.scale : 0);
  auto const blocks = only_root_sends(operation) ? 1 : ranks();
  if (sent * blocks > Announcer::kMostBytes) return false;
  return static_cast<double>(sent * (blocks == 1 ? 1 : blocks - 1)) * network_.beta_s_per_byte <= others_s;
}

void UcxBackend::run_small(Call const& call, Purpose const& purpose) {
  explain(call, "inline", [] { return "buffers ride along with the announcement"; });
  if (combines(call.contract.operation)) return combine_small(call, purpose);
  move_small(call, purpose);
}

void UcxBackend::combine_small(Call const& call, Purpose const& purpose) {
  auto const operation = call.contract.operation;
  auto const sent = call.bytes() * sent_parts(operation, ranks());
  auto const before = has_scales(call) ? sizeof call.scale : 0;
  void const* mine = call.send;
  if (before > 0) {
    contribution_.resize(before + sent);
    std::memcpy(contribution_.data(), &call.scale, before);
    if (sent > 0) std::memcpy(contribution_.data() + before, call.send, sent);
    mine = contribution_.data();
  }
  announcer_.exchange(purpose, call, mine, before + sent);

  auto const is_scan = operation == Operation::scan || operation == Operation::exscan;
  if (operation == Operation::reduce && !call.is_root(rank())) return;
  if (operation == Operation::exscan && rank() == 0) return;
  auto const contributors = is_scan ? rank() + (operation == Operation::scan ? 1 : 0) : size();
  auto const first = operation == Operation::reduce_scatter ? static_cast<std::size_t>(rank()) * call.bytes() : 0;
  sources_.clear();
  scales_.assign(static_cast<std::size_t>(contributors), 1);
  for (int peer = 0; peer < contributors; ++peer) {
    auto const* const block = announcer_.block_of(peer);
    if (before > 0) std::memcpy(&scales_[static_cast<std::size_t>(peer)], block, before);
    sources_.push_back(block + before + first);
  }
  auto const dtype = call.contract.dtype;
  kernels::Reducer const how(call.contract.reduce, scales_.data(), call.user);
  auto const count = call.bytes() / call.grain();
  if (!is_scan && hosts_.applies_to(dtype, call.contract.reduce)) {
    return hosts_.reduce({&call.recv, 1}, sources_, count, dtype, how);
  }
  kernels::reduce({&call.recv, 1}, sources_, count, dtype, how);
}

void UcxBackend::move_small(Call const& call, Purpose const& purpose) {
  auto const operation = call.contract.operation;
  auto const bytes = call.bytes();
  auto const mine = static_cast<std::size_t>(rank()) * bytes;
  auto const take = [&](std::size_t offset, std::byte const* from) {
    if (bytes > 0) std::memcpy(at(call.recv, offset), from, bytes);
  };
  switch (operation) {
    case Operation::broadcast:
      announcer_.broadcast(purpose, call, call.send, bytes);
      if (!call.is_root(rank()) || call.recv != call.send) take(0, announcer_.block_of(rank()));
      return;
    case Operation::scatter:
      announcer_.broadcast(purpose, call, call.send, ranks() * bytes);
      return take(0, announcer_.block_of(rank()) + mine);
    case Operation::all_gather:
    case Operation::gather:
      announcer_.exchange(purpose, call, call.send, bytes);
      if (operation == Operation::gather && !call.is_root(rank())) return;
      for (int peer = 0; peer < size(); ++peer) take(static_cast<std::size_t>(peer) * bytes, announcer_.block_of(peer));
      return;
    case Operation::all_to_all:
      announcer_.exchange(purpose, call, call.send, ranks() * bytes);
      for (int peer = 0; peer < size(); ++peer) {
        take(static_cast<std::size_t>(peer) * bytes, announcer_.block_of(peer) + mine);
      }
      return;
    default: return announcer_.announce(purpose, call);
  }
}

}  // namespace weft::ucx
