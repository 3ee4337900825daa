#include "collectives/staged/flat_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft::staged {
namespace {

/// Whether the operation treats a buffer as one piece, element by element.
bool is_elementwise(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::broadcast:
    case Operation::scan:
    case Operation::exscan: return true;
    default: return false;
  }
}

Reduction reduction_of(Call const& call) noexcept {
  auto const op = call.contract.reduce;
  if (op == ReduceOp::premul_sum) return Reduction::premul_sum(call.scale);
  // The contracts have been compared already, so the ranks' names of the operator are equal.
  if (op == ReduceOp::user) return Reduction::user(call.user.combine, call.user.context, call.user.element_bytes);
  return op;
}

}  // namespace

FlatPlan::FlatPlan(Call with, Communicator& host, std::size_t region_bytes)
    : Plan(std::move(with)), host_(host), rank_(host.rank()), size_(host.size()) {
  divide();
  auto const pieces = is_elementwise(call().contract.operation) ? std::size_t{1} : static_cast<std::size_t>(size_);
  constexpr std::size_t kLine = 64;
  auto const grain = std::lcm(call().grain(), region_bytes / pieces >= 64 * kLine * call().grain() ? kLine : 1);
  width_ = region_bytes / pieces / grain * grain;
  std::size_t longest = 0;
  for (auto const* side : {&sends_, &recvs_}) {
    for (auto const& piece : *side) longest = std::max(longest, piece.length);
  }
  steps_ = std::max<std::size_t>(1, (longest + width_ - 1) / width_);
}

void FlatPlan::divide() {
  switch (call().contract.operation) {
    case Operation::all_reduce:
    case Operation::scan:
      sends_ = whole();
      recvs_ = whole();
      break;
    case Operation::exscan:
      sends_ = whole();
      if (rank_ != 0) recvs_ = whole();  // rank 0's buffer stays as it is
      break;
    case Operation::reduce:
      sends_ = whole();
      if (is_root()) recvs_ = whole();
      break;
    case Operation::broadcast: (is_root() ? sends_ : recvs_) = whole(); break;
    case Operation::all_gather:
    case Operation::all_gather_v:
      sends_ = own(call().recv_parts);
      recvs_ = parts_of(call().recv_parts);
      break;
    case Operation::reduce_scatter:
    case Operation::reduce_scatter_v:
      sends_ = parts_of(call().send_parts);
      recvs_ = own(call().send_parts);
      break;
    case Operation::gather:
    case Operation::gather_v:
      sends_ = own({});
      if (is_root()) recvs_ = parts_of(call().recv_parts);
      break;
    case Operation::scatter:
    case Operation::scatter_v:
      if (is_root()) sends_ = parts_of(call().send_parts);
      recvs_ = own({});
      break;
    case Operation::all_to_all:
    case Operation::all_to_all_v:
      sends_ = parts_of(call().send_parts);
      recvs_ = parts_of(call().recv_parts);
      break;
    default: break;  // a barrier has no bytes
  }
}

FlatPlan::Pieces FlatPlan::own(Parts const& parts) const {
  if (!parts.counts.empty()) return {{0, call().part(parts, rank_).length}};
  auto const operation = call().contract.operation;
  bool const unequal = operation == Operation::gather_v || operation == Operation::scatter_v;
  return {{0, unequal ? call().own_bytes : call().bytes()}};
}

FlatPlan::Pieces FlatPlan::parts_of(Parts const& parts) const {
  Pieces pieces;
  for (int rank = 0; rank < size_; ++rank) pieces.push_back(call().part(parts, rank));
  return pieces;
}

std::size_t FlatPlan::length(ByteRange const& piece, std::size_t step) const noexcept {
  auto const first = step * width_;
  return first >= piece.length ? 0 : std::min(width_, piece.length - first);
}

FlatPlan::Counts FlatPlan::counts(Pieces const& pieces, std::size_t step) const {
  Counts counts;
  for (auto const& piece : pieces) counts.push_back(length(piece, step) / size_of(call().contract.dtype));
  return counts;
}

// The host's broadcast has one buffer for sending and receiving.
std::byte* FlatPlan::given_at(Slot const& slot) const noexcept {
  return call().contract.operation == Operation::broadcast ? slot.recv : slot.send;
}

Copies FlatPlan::copies_out(std::size_t step, Slot const& slot) const {
  Copies copies;
  auto* to = given_at(slot);
  for (auto const& piece : sends_) {
    auto const bytes = length(piece, step);
    add_row(copies, to, static_cast<std::byte const*>(call().send) + piece.offset + step * width_, bytes);
    to += bytes;
  }
  return copies;
}

Copies FlatPlan::copies_in(std::size_t step, Slot const& slot) const {
  Copies copies;
  auto const* from = slot.recv;
  for (auto const& piece : recvs_) {
    auto const bytes = length(piece, step);
    add_row(copies, static_cast<std::byte*>(call().recv) + piece.offset + step * width_, from, bytes);
    from += bytes;
  }
  return copies;
}

void FlatPlan::exchange(std::size_t step, Slot const& slot) const {
  auto const dtype = call().contract.dtype;
  auto const root = static_cast<int>(call().contract.root);
  CollectiveOptions const how{.timeout = call().timeout};
  auto const given = counts(sends_, step);
  auto const got = counts(recvs_, step);
  auto const sum = [](Counts const& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); };
  ConstBufferView const send(slot.send, sum(given), dtype);
  BufferView const recv(slot.recv, sum(got), dtype);
  switch (call().contract.operation) {
    case Operation::all_reduce: host_.all_reduce(send, recv, reduction_of(call()), how); break;
    case Operation::reduce: host_.reduce(send, recv, reduction_of(call()), root, how); break;
    case Operation::scan: host_.scan(send, recv, reduction_of(call()), how); break;
    // The host wants as many elements on rank 0 as on other ranks, and leaves rank 0's alone.
    case Operation::exscan: host_.exscan(send, {slot.recv, send.count, dtype}, reduction_of(call()), how); break;
    case Operation::broadcast:
      host_.broadcast(is_root() ? BufferView(slot.recv, send.count, dtype) : recv, root, how);
      break;
    case Operation::reduce_scatter: host_.reduce_scatter(send, recv, reduction_of(call()), how); break;
    case Operation::reduce_scatter_v: host_.reduce_scatter(send, recv, Parts{given}, reduction_of(call()), how); break;
    case Operation::all_gather: host_.all_gather(send, recv, how); break;
    case Operation::all_gather_v: host_.all_gather(send, recv, Parts{got}, how); break;
    case Operation::gather: host_.gather(send, recv, root, how); break;
    case Operation::gather_v: host_.gather(send, recv, Parts{got}, root, how); break;
    case Operation::scatter: host_.scatter(send, recv, root, how); break;
    case Operation::scatter_v: host_.scatter(send, Parts{given}, recv, root, how); break;
    case Operation::all_to_all: host_.all_to_all(send, recv, how); break;
    case Operation::all_to_all_v: host_.all_to_all(send, Parts{given}, recv, Parts{got}, how); break;
    default: break;  // a barrier: comparing the contracts has been one
  }
}

}  // namespace weft::staged
