#include "collectives/staged/plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft::staged {
namespace {

/// Of the whole buffer at once, element by element.
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

/// Adds a row, to the last copy where it continues that one.
void add_row(Copies& copies, std::byte* to, std::byte const* from, std::size_t width) {
  if (width == 0) return;
  if (!copies.empty()) {
    auto& last = copies.back();
    auto const to_pitch = to - (last.to + (last.rows - 1) * last.to_pitch);
    auto const from_pitch = from - (last.from + (last.rows - 1) * last.from_pitch);
    auto const least = static_cast<std::ptrdiff_t>(width);
    bool const fits = last.width == width && to_pitch >= least && from_pitch >= least;
    bool const goes_on = last.rows == 1 || (to_pitch == static_cast<std::ptrdiff_t>(last.to_pitch) &&
                                            from_pitch == static_cast<std::ptrdiff_t>(last.from_pitch));
    if (fits && goes_on) {
      last.to_pitch = static_cast<std::size_t>(to_pitch);
      last.from_pitch = static_cast<std::size_t>(from_pitch);
      ++last.rows;
      return;
    }
  }
  copies.push_back({to, from, width, 1, 0, 0});
}

}  // namespace

Plan::Plan(Call call, int rank, int size, std::size_t region_bytes) : call_(std::move(call)), rank_(rank), size_(size) {
  divide();
  auto const pieces = is_elementwise(call_.contract.operation) ? std::size_t{1} : static_cast<std::size_t>(size);
  constexpr std::size_t kLine = 64;
  auto const grain = std::lcm(call_.grain(), region_bytes / pieces >= 64 * kLine * call_.grain() ? kLine : 1);
  width_ = region_bytes / pieces / grain * grain;
  std::size_t longest = 0;
  for (auto const* side : {&sends_, &recvs_}) {
    for (auto const& piece : *side) longest = std::max(longest, piece.length);
  }
  steps_ = std::max<std::size_t>(1, (longest + width_ - 1) / width_);
}

void Plan::divide() {
  switch (call_.contract.operation) {
    case Operation::all_reduce:
    case Operation::scan:
      sends_ = whole();
      recvs_ = whole();
      break;
    case Operation::exscan:
      sends_ = whole();
      if (rank_ != 0) recvs_ = whole();  // rank 0's is left as it is
      break;
    case Operation::reduce:
      sends_ = whole();
      if (is_root()) recvs_ = whole();
      break;
    case Operation::broadcast: (is_root() ? sends_ : recvs_) = whole(); break;
    case Operation::all_gather:
    case Operation::all_gather_v:
      sends_ = own(call_.recv_parts);
      recvs_ = parts_of(call_.recv_parts);
      break;
    case Operation::reduce_scatter:
    case Operation::reduce_scatter_v:
      sends_ = parts_of(call_.send_parts);
      recvs_ = own(call_.send_parts);
      break;
    case Operation::gather:
    case Operation::gather_v:
      sends_ = own({});
      if (is_root()) recvs_ = parts_of(call_.recv_parts);
      break;
    case Operation::scatter:
    case Operation::scatter_v:
      if (is_root()) sends_ = parts_of(call_.send_parts);
      recvs_ = own({});
      break;
    case Operation::all_to_all:
    case Operation::all_to_all_v:
      sends_ = parts_of(call_.send_parts);
      recvs_ = parts_of(call_.recv_parts);
      break;
    default: break;  // a barrier has no bytes
  }
}

Plan::Pieces Plan::own(Parts const& parts) const {
  if (!parts.counts.empty()) return {{0, call_.part(parts, rank_).length}};
  auto const operation = call_.contract.operation;
  bool const unequal = operation == Operation::gather_v || operation == Operation::scatter_v;
  return {{0, unequal ? call_.own_bytes : call_.bytes()}};
}

Plan::Pieces Plan::parts_of(Parts const& parts) const {
  Pieces pieces;
  for (int rank = 0; rank < size_; ++rank) pieces.push_back(call_.part(parts, rank));
  return pieces;
}

std::size_t Plan::length(ByteRange const& piece, std::size_t step) const noexcept {
  auto const first = step * width_;
  return first >= piece.length ? 0 : std::min(width_, piece.length - first);
}

Plan::Counts Plan::counts(Pieces const& pieces, std::size_t step) const {
  Counts counts;
  for (auto const& piece : pieces) counts.push_back(length(piece, step) / size_of(call_.contract.dtype));
  return counts;
}

// A broadcast's host buffer is one for both.
std::byte* Plan::given_at(Slot const& slot) const noexcept {
  return call_.contract.operation == Operation::broadcast ? slot.recv : slot.send;
}

Copies Plan::copies_out(std::size_t step, Slot const& slot) const {
  Copies copies;
  auto* to = given_at(slot);
  for (auto const& piece : sends_) {
    auto const bytes = length(piece, step);
    add_row(copies, to, static_cast<std::byte const*>(call_.send) + piece.offset + step * width_, bytes);
    to += bytes;
  }
  return copies;
}

Copies Plan::copies_in(std::size_t step, Slot const& slot) const {
  Copies copies;
  auto const* from = slot.recv;
  for (auto const& piece : recvs_) {
    auto const bytes = length(piece, step);
    add_row(copies, static_cast<std::byte*>(call_.recv) + piece.offset + step * width_, from, bytes);
    from += bytes;
  }
  return copies;
}

Reduction Plan::reduction() const noexcept {
  auto const op = call_.contract.reduce;
  if (op == ReduceOp::premul_sum) return Reduction::premul_sum(call_.scale);
  // That the names agree the ranks know from their contracts.
  if (op == ReduceOp::user) return Reduction::user(call_.user.combine, call_.user.context, call_.user.element_bytes);
  return op;
}

void Plan::exchange(std::size_t step, Slot const& slot, Communicator& host) const {
  auto const dtype = call_.contract.dtype;
  auto const root = static_cast<int>(call_.contract.root);
  CollectiveOptions const how{.timeout = call_.timeout};
  auto const given = counts(sends_, step);
  auto const got = counts(recvs_, step);
  auto const sum = [](Counts const& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); };
  ConstBufferView const send(slot.send, sum(given), dtype);
  BufferView const recv(slot.recv, sum(got), dtype);
  switch (call_.contract.operation) {
    case Operation::all_reduce: host.all_reduce(send, recv, reduction(), how); break;
    case Operation::reduce: host.reduce(send, recv, reduction(), root, how); break;
    case Operation::scan: host.scan(send, recv, reduction(), how); break;
    // Of rank 0's the host wants as many elements as of others, and leaves them alone.
    case Operation::exscan: host.exscan(send, {slot.recv, send.count, dtype}, reduction(), how); break;
    case Operation::broadcast:
      host.broadcast(is_root() ? BufferView(slot.recv, send.count, dtype) : recv, root, how);
      break;
    case Operation::reduce_scatter: host.reduce_scatter(send, recv, reduction(), how); break;
    case Operation::reduce_scatter_v: host.reduce_scatter(send, recv, Parts{given}, reduction(), how); break;
    case Operation::all_gather: host.all_gather(send, recv, how); break;
    case Operation::all_gather_v: host.all_gather(send, recv, Parts{got}, how); break;
    case Operation::gather: host.gather(send, recv, root, how); break;
    case Operation::gather_v: host.gather(send, recv, Parts{got}, root, how); break;
    case Operation::scatter: host.scatter(send, recv, root, how); break;
    case Operation::scatter_v: host.scatter(send, Parts{given}, recv, root, how); break;
    case Operation::all_to_all: host.all_to_all(send, recv, how); break;
    case Operation::all_to_all_v: host.all_to_all(send, Parts{given}, recv, Parts{got}, how); break;
    default: break;  // that all have told their contracts is a barrier
  }
}

}  // namespace weft::staged
