#include "collectives/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/error.hpp"

namespace weft {
namespace {

std::byte const* end_of(ConstBufferView const& view) {
  return static_cast<std::byte const*>(view.data) + view.bytes();
}

std::byte const* element(ConstBufferView const& view, std::size_t index) {
  return static_cast<std::byte const*>(view.data) + index * size_of(view.dtype);
}

std::byte const* at(void const* base, std::size_t bytes) {
  return static_cast<std::byte const*>(base) + bytes;
}

std::size_t total(Parts const& parts) {
  return std::accumulate(parts.counts.begin(), parts.counts.end(), std::size_t{0});
}

/// Equal arrays agree; different ones collide with probability 2^-32.
std::uint32_t fingerprint(std::span<std::size_t const> counts, std::span<std::size_t const> offsets = {}) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (auto const array : {counts, offsets}) {
    for (auto const value : array) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29U;
    }
  }
  return static_cast<std::uint32_t>(hash >> 32U);
}

/// What ranks compare of a user reduction.
std::uint8_t variant(Reduction const& how) {
  if (how.op() != ReduceOp::user) return 0;
  std::uint64_t hash = 0xcbf29ce484222325U ^ how.function().element_bytes;
  for (char const c : how.name()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x9e3779b97f4a7c15U;
  return static_cast<std::uint8_t>((hash * 0x9e3779b97f4a7c15U) >> 56U);
}

std::string supported_ops(DataType dtype) {
  std::string names;
  for (auto op = ReduceOp::sum; is_valid(op); op = static_cast<ReduceOp>(static_cast<int>(op) + 1)) {
    if (supports(dtype, op)) names += fmt::format("{}{}", names.empty() ? "" : " ", to_string(op));
  }
  return names;
}

/// Whether an integer type has the value.
bool holds(DataType dtype, double value) {
  auto const bits = static_cast<int>(8 * size_of(dtype)) - (is_signed(dtype) ? 1 : 0);
  auto const limit = std::ldexp(1.0, bits);
  return value == std::trunc(value) && value < limit && value >= (is_signed(dtype) ? -limit : 0.0);
}

}  // namespace

void Validator::reject(Operation operation, std::string const& why) const {
  throw Error(ErrorCode::invalid_argument, fmt::format("rank {}: {}: {}", rank, to_string(operation), why));
}

void Validator::reject_view(Operation operation, char const* name, ConstBufferView const& view) const {
  if (!is_valid(view.dtype)) {
    reject(operation, fmt::format("{} has unsupported data type {}", name, static_cast<int>(view.dtype)));
  }
  if (view.device.type != DeviceType::cpu) {
    throw Error(ErrorCode::unsupported, fmt::format("rank {}: {}: {} is on {}; this communicator moves host memory",
                                                    rank, to_string(operation), name, to_string(view.device)));
  }
  if (view.data == nullptr) reject(operation, fmt::format("{} is null but has {} elements", name, view.count));
  reject(operation, fmt::format("{} has {} elements, more than memory can hold", name, view.count));
}

void Validator::check_same_type(Operation operation, ConstBufferView const& send, ConstBufferView const& recv) const {
  if (send.dtype != recv.dtype) {
    reject(operation, fmt::format("send is {} but recv is {}", to_string(send.dtype), to_string(recv.dtype)));
  }
}

void Validator::check_overlap(Operation operation, ConstBufferView const& send, ConstBufferView const& recv,
                              void const* in_place_send, void const* in_place_recv) const {
  if (send.bytes() == 0 || recv.bytes() == 0 || in_place_send == in_place_recv) return;
  if (send.data < end_of(recv) && recv.data < end_of(send)) {
    reject(operation,
           "send and recv overlap without being in place; use separate buffers or the documented in-place address");
  }
}

void Validator::examine_reduction(Operation operation, Reduction const& how, ConstBufferView const& part) const {
  auto const op = how.op();
  if (!is_valid(op)) reject(operation, fmt::format("unsupported reduce op {}", static_cast<int>(op)));
  if (!supports(part.dtype, op)) {
    reject(operation, fmt::format("{} has no meaning for {}, which is reduced by {}", to_string(op),
                                  to_string(part.dtype), supported_ops(part.dtype)));
  }
  if (op == ReduceOp::premul_sum && is_integer(part.dtype) && !holds(part.dtype, how.scale())) {
    reject(operation, fmt::format("premul_sum's scale {} is not a value of {}", how.scale(), to_string(part.dtype)));
  }
  if (op != ReduceOp::user) return;
  auto const element = how.function().element_bytes != 0 ? how.function().element_bytes : size_of(part.dtype);
  if (how.function().combine == nullptr) reject(operation, "user needs a function; make it by Reduction::user()");
  if (element > Reduction::kMaxElementBytes) {
    reject(operation, fmt::format("elements of {} bytes for {}; at most {} are supported", element, how.name(),
                                  Reduction::kMaxElementBytes));
  }
  if (part.bytes() % element != 0) {
    reject(operation,
           fmt::format("{} bytes are no whole number of {}'s elements of {}", part.bytes(), how.name(), element));
  }
}

void Validator::check_root(Operation operation, int root) const {
  if (root < 0 || root >= size)
    reject(operation, fmt::format("root {} is not a rank; ranks are 0 to {}", root, size - 1));
}

void Validator::check_parts(Operation operation, char const* name, ConstBufferView const& view, Parts const& parts,
                            bool written) const {
  auto const ranks = static_cast<std::size_t>(size);
  if (parts.counts.size() != ranks || (!parts.offsets.empty() && parts.offsets.size() != ranks)) {
    reject(operation,
           fmt::format("parts of {} need {} counts (one per rank) and as many offsets or none, not {} and {}", name,
                       ranks, parts.counts.size(), parts.offsets.size()));
  }
  std::size_t next = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const first = parts.offsets.empty() ? next : parts.offsets[r];
    if (first > view.count || parts.counts[r] > view.count - first) {
      reject(operation, fmt::format("rank {}'s part, {} elements from {}, lies outside {}, which has {}", r,
                                    parts.counts[r], first, name, view.count));
    }
    next = first + parts.counts[r];
  }
  if (!written || parts.offsets.empty()) return;
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = a + 1; b < ranks; ++b) {
      if (parts.counts[a] > 0 && parts.counts[b] > 0 && parts.offsets[a] < parts.offsets[b] + parts.counts[b] &&
          parts.offsets[b] < parts.offsets[a] + parts.counts[a]) {
        reject(operation, fmt::format("the parts of ranks {} and {} in {} overlap", a, b, name));
      }
    }
  }
}

void Validator::check_count(Operation operation, char const* name, std::size_t count, std::size_t wanted) const {
  if (count != wanted) reject(operation, fmt::format("{} has {} elements, needs {}", name, count, wanted));
}

Call Validator::all_reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how) const {
  constexpr auto kOperation = Operation::all_reduce;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_reduction(kOperation, how, recv);
  if (send.count != recv.count)
    reject(kOperation, fmt::format("send has {} elements, recv has {}", send.count, recv.count));
  check_overlap(kOperation, send, recv, send.data, recv.data);
  return {.contract = {.count = send.count,
                       .operation = kOperation,
                       .dtype = send.dtype,
                       .reduce = how.op(),
                       .variant = variant(how)},
          .send = send.data,
          .recv = recv.data,
          .scale = how.scale(),
          .user = how.function()};
}

Call Validator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, Reduction const& how) const {
  constexpr auto kOperation = Operation::reduce_scatter;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_reduction(kOperation, how, recv);
  auto const ranks = static_cast<std::size_t>(size);
  if (send.count / ranks != recv.count || send.count % ranks != 0) {
    reject(kOperation, fmt::format("send has {} elements, needs {} (ranks) × {} (recv)", send.count, size, recv.count));
  }
  check_overlap(kOperation, send, recv, element(send, static_cast<std::size_t>(rank) * recv.count), recv.data);
  return {.contract = {.count = recv.count,
                       .operation = kOperation,
                       .dtype = send.dtype,
                       .reduce = how.op(),
                       .variant = variant(how)},
          .send = send.data,
          .recv = recv.data,
          .scale = how.scale(),
          .user = how.function()};
}

Call Validator::all_gather(ConstBufferView const& send, BufferView const& recv) const {
  constexpr auto kOperation = Operation::all_gather;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  auto const ranks = static_cast<std::size_t>(size);
  if (recv.count / ranks != send.count || recv.count % ranks != 0) {
    reject(kOperation, fmt::format("recv has {} elements, needs {} (ranks) × {} (send)", recv.count, size, send.count));
  }
  check_overlap(kOperation, send, recv, send.data, element(recv, static_cast<std::size_t>(rank) * send.count));
  return {.contract = {.count = send.count, .operation = kOperation, .dtype = send.dtype},
          .send = send.data,
          .recv = recv.data};
}

Call Validator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                               Reduction const& how) const {
  constexpr auto kOperation = Operation::reduce_scatter_v;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_reduction(kOperation, how, recv);
  check_parts(kOperation, "send", send, parts, false);
  check_count(kOperation, "recv", recv.count, parts.counts[static_cast<std::size_t>(rank)]);
  if (how.op() == ReduceOp::user) {
    for (auto const count : parts.counts) examine_reduction(kOperation, how, {send.data, count, send.dtype});
  }
  Call call{.contract = {.count = total(parts),
                         .root = fingerprint(parts.counts, parts.offsets),
                         .operation = kOperation,
                         .dtype = send.dtype,
                         .reduce = how.op(),
                         .variant = variant(how)},
            .send = send.data,
            .recv = recv.data,
            .send_parts = parts,
            .scale = how.scale(),
            .user = how.function()};
  check_overlap(kOperation, send, recv, at(send.data, call.part(parts, rank).offset), recv.data);
  return call;
}

Call Validator::all_gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts) const {
  constexpr auto kOperation = Operation::all_gather_v;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_parts(kOperation, "recv", recv, parts, true);
  check_count(kOperation, "send", send.count, parts.counts[static_cast<std::size_t>(rank)]);
  Call call{.contract = {.count = total(parts),
                         .root = fingerprint(parts.counts),
                         .operation = kOperation,
                         .dtype = send.dtype},
            .send = send.data,
            .recv = recv.data,
            .recv_parts = parts};
  check_overlap(kOperation, send, recv, send.data, at(recv.data, call.part(parts, rank).offset));
  return call;
}

Call Validator::reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how, int root) const {
  constexpr auto kOperation = Operation::reduce;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_reduction(kOperation, how, send);
  check_root(kOperation, root);
  if (rank == root) {
    check_count(kOperation, "recv", recv.count, send.count);
    check_overlap(kOperation, send, recv, send.data, recv.data);
  }
  return {.contract = {.count = send.count,
                       .root = static_cast<std::uint32_t>(root),
                       .operation = kOperation,
                       .dtype = send.dtype,
                       .reduce = how.op(),
                       .variant = variant(how)},
          .send = send.data,
          .recv = recv.data,
          .scale = how.scale(),
          .user = how.function()};
}

Call Validator::gather(ConstBufferView const& send, BufferView const& recv, int root) const {
  constexpr auto kOperation = Operation::gather;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_root(kOperation, root);
  if (rank == root) {
    check_count(kOperation, "recv", recv.count, send.count * static_cast<std::size_t>(size));
    check_overlap(kOperation, send, recv, send.data, element(recv, static_cast<std::size_t>(rank) * send.count));
  }
  return {.contract = {.count = send.count,
                       .root = static_cast<std::uint32_t>(root),
                       .operation = kOperation,
                       .dtype = send.dtype},
          .send = send.data,
          .recv = recv.data};
}

Call Validator::gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts, int root) const {
  constexpr auto kOperation = Operation::gather_v;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_root(kOperation, root);
  Call call{.contract = {.root = static_cast<std::uint32_t>(root), .operation = kOperation, .dtype = send.dtype},
            .send = send.data,
            .recv = recv.data,
            .own_bytes = send.bytes()};
  if (rank == root) {
    check_parts(kOperation, "recv", recv, parts, true);
    call.recv_parts = parts;
    check_overlap(kOperation, send, recv, send.data, at(recv.data, call.part(parts, rank).offset));
  }
  return call;
}

Call Validator::scatter(ConstBufferView const& send, BufferView const& recv, int root) const {
  constexpr auto kOperation = Operation::scatter;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_root(kOperation, root);
  if (rank == root) {
    check_count(kOperation, "send", send.count, recv.count * static_cast<std::size_t>(size));
    check_overlap(kOperation, send, recv, element(send, static_cast<std::size_t>(rank) * recv.count), recv.data);
  }
  return {.contract = {.count = recv.count,
                       .root = static_cast<std::uint32_t>(root),
                       .operation = kOperation,
                       .dtype = send.dtype},
          .send = send.data,
          .recv = recv.data};
}

Call Validator::scatter(ConstBufferView const& send, Parts const& parts, BufferView const& recv, int root) const {
  constexpr auto kOperation = Operation::scatter_v;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_root(kOperation, root);
  Call call{.contract = {.root = static_cast<std::uint32_t>(root), .operation = kOperation, .dtype = send.dtype},
            .send = send.data,
            .recv = recv.data,
            .own_bytes = recv.bytes()};
  if (rank == root) {
    check_parts(kOperation, "send", send, parts, false);
    call.send_parts = parts;
    check_overlap(kOperation, send, recv, at(send.data, call.part(parts, rank).offset), recv.data);
  }
  return call;
}

Call Validator::all_to_all(ConstBufferView const& send, BufferView const& recv) const {
  constexpr auto kOperation = Operation::all_to_all;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  auto const ranks = static_cast<std::size_t>(size);
  if (send.count % ranks != 0)
    reject(kOperation, fmt::format("send has {} elements, which {} ranks cannot share equally", send.count, size));
  check_count(kOperation, "recv", recv.count, send.count);
  check_overlap(kOperation, send, recv, send.data, recv.data);
  return {.contract = {.count = send.count / ranks, .operation = kOperation, .dtype = send.dtype},
          .send = send.data,
          .recv = recv.data};
}

Call Validator::all_to_all(ConstBufferView const& send, Parts const& send_parts, BufferView const& recv,
                           Parts const& recv_parts) const {
  constexpr auto kOperation = Operation::all_to_all_v;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_parts(kOperation, "send", send, send_parts, false);
  check_parts(kOperation, "recv", recv, recv_parts, true);
  check_overlap(kOperation, send, recv, nullptr, this);
  return {.contract = {.operation = kOperation, .dtype = send.dtype},
          .send = send.data,
          .recv = recv.data,
          .send_parts = send_parts,
          .recv_parts = recv_parts};
}

Call Validator::scan(ConstBufferView const& send, BufferView const& recv, Reduction const& how, bool inclusive) const {
  auto const operation = inclusive ? Operation::scan : Operation::exscan;
  check_view(operation, "send", send);
  check_view(operation, "recv", recv);
  check_same_type(operation, send, recv);
  check_reduction(operation, how, recv);
  if (how.op() == ReduceOp::avg) reject(operation, "avg has no meaning over some of the ranks; use sum");
  check_count(operation, "recv", recv.count, send.count);
  check_overlap(operation, send, recv, send.data, recv.data);
  return {.contract = {.count = send.count,
                       .operation = operation,
                       .dtype = send.dtype,
                       .reduce = how.op(),
                       .variant = variant(how)},
          .send = send.data,
          .recv = recv.data,
          .scale = how.scale(),
          .user = how.function()};
}

Call Validator::broadcast(BufferView const& buffer, int root) const {
  constexpr auto kOperation = Operation::broadcast;
  check_view(kOperation, "buffer", buffer);
  check_root(kOperation, root);
  return {.contract = {.count = buffer.count,
                       .root = static_cast<std::uint32_t>(root),
                       .operation = kOperation,
                       .dtype = buffer.dtype},
          .send = buffer.data,
          .recv = buffer.data};
}

void Validator::check_peer(Operation operation, int peer) const {
  if (peer < 0 || peer >= size)
    reject(operation, fmt::format("there is no rank {}; ranks are 0 to {}", peer, size - 1));
}

Call Validator::send(ConstBufferView const& buffer, int to) const {
  constexpr auto kOperation = Operation::send;
  check_view(kOperation, "buffer", buffer);
  check_peer(kOperation, to);
  if (to == rank) reject(kOperation, "a rank cannot send to itself and wait; use send_recv");
  return {.contract = {.count = buffer.count,
                       .root = static_cast<std::uint32_t>(to),
                       .operation = kOperation,
                       .dtype = buffer.dtype},
          .send = buffer.data};
}

Call Validator::recv(BufferView const& buffer, int from) const {
  constexpr auto kOperation = Operation::receive;
  check_view(kOperation, "buffer", buffer);
  check_peer(kOperation, from);
  if (from == rank) reject(kOperation, "a rank cannot receive from itself and wait; use send_recv");
  return {.contract = {.count = buffer.count,
                       .root = static_cast<std::uint32_t>(from),
                       .operation = kOperation,
                       .dtype = buffer.dtype},
          .recv = buffer.data};
}

Call Validator::send_recv(ConstBufferView const& send, int to, BufferView const& recv, int from) const {
  constexpr auto kOperation = Operation::send_receive;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_peer(kOperation, to);
  check_peer(kOperation, from);
  check_overlap(kOperation, send, recv, nullptr, this);
  return {.contract = {.count = std::max(send.count, recv.count), .operation = kOperation, .dtype = send.dtype},
          .send = send.data,
          .recv = recv.data};
}

Call Validator::allocate(std::size_t count, DataType dtype) const {
  constexpr auto kOperation = Operation::allocate;
  check_view(kOperation, "buffer", {this, count, dtype});
  return {.contract = {.count = count, .operation = kOperation, .dtype = dtype}};
}

}  // namespace weft
