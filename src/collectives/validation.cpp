#include "collectives/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "collectives/user_names.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

template <typename View>
std::byte const* end_of(View const& view) {
  return static_cast<std::byte const*>(view.data) + view.bytes();
}

template <typename View>
std::byte const* element(View const& view, std::size_t index) {
  return static_cast<std::byte const*>(view.data) + index * size_of(view.dtype);
}

std::byte const* at(void const* base, std::size_t bytes) {
  return static_cast<std::byte const*>(base) + bytes;
}

std::size_t total(Parts const& parts) {
  return std::accumulate(parts.counts.begin(), parts.counts.end(), std::size_t{0});
}

/// Whether parts `a` and `b`, which have offsets and lie inside a buffer, have elements in common.
bool share_elements(Parts const& parts, std::size_t a, std::size_t b) noexcept {
  return parts.counts[a] > 0 && parts.counts[b] > 0 && parts.offsets[a] < parts.offsets[b] + parts.counts[b] &&
         parts.offsets[b] < parts.offsets[a] + parts.counts[a];
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

/// The fingerprint of a user reduction that ranks compare; 0 for other reductions.
std::uint8_t variant(Reduction const& how) {
  if (how.op() != ReduceOp::user) return 0;
  std::uint64_t hash = 0xcbf29ce484222325U ^ how.function().element_bytes;
  for (char const c : how.name()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x9e3779b97f4a7c15U;
  auto const fingerprint = static_cast<std::uint8_t>((hash * 0x9e3779b97f4a7c15U) >> 56U);
  remember_user_name(fingerprint, how.name(), how.function().element_bytes);
  return fingerprint;
}

std::string supported_ops(DataType dtype) {
  std::string names;
  for (auto op = ReduceOp::sum; is_valid(op); op = static_cast<ReduceOp>(static_cast<int>(op) + 1)) {
    if (supports(dtype, op)) names += fmt::format("{}{}", names.empty() ? "" : " ", to_string(op));
  }
  return names;
}

/// Whether the integer type can represent the value.
bool holds(DataType dtype, double value) {
  auto const bits = static_cast<int>(8 * size_of(dtype)) - (is_signed(dtype) ? 1 : 0);
  auto const limit = std::ldexp(1.0, bits);
  return value == std::trunc(value) && value < limit && value >= (is_signed(dtype) ? -limit : 0.0);
}

/// Whether `whole` elements are `part` elements for each of so many ranks. It multiplies, since a division took a
/// seventh of the checks' time (Sapphire Rapids).
bool is_part_of(std::size_t part, std::size_t whole, int ranks) noexcept {
  std::size_t product = 0;
  return !__builtin_mul_overflow(part, static_cast<std::size_t>(ranks), &product) && product == whole;
}

}  // namespace

inline void Validator::check_overlap(Operation operation, ConstBufferView const& send, BufferView const& recv,
                                     void const* in_place_send, void const* in_place_recv) const {
  if (send.data >= end_of(recv) || recv.data >= end_of(send)) [[likely]]
    return;
  if (send.count == 0 || recv.count == 0 || in_place_send == in_place_recv) return;
  reject(operation,
         "send and recv overlap without being in place; use separate buffers or the documented in-place address");
}

std::string Validator::explain(std::string_view function, bool is_message, std::string const& why) const {
  std::uint64_t made = 0;
  if (is_message && transfers != nullptr) made = *transfers;
  if (!is_message && collectives != nullptr) made = collectives->load(std::memory_order_relaxed);
  return fmt::format("rank {}{}: {}, {}call {}: {}", rank, name.empty() ? "" : fmt::format(" of {}", name), function,
                     is_message ? "point-to-point " : "", made + 1, why);
}

void Validator::fail(ErrorCode code, std::string_view function, bool is_message, std::string const& why) const {
  throw Error(code, explain(function, is_message, why));
}

void Validator::fail(ErrorCode code, Operation operation, std::string const& why) const {
  fail(code, to_string(operation), is_point_to_point(operation), why);
}

void Validator::reject(std::string_view function, std::string const& why) const {
  fail(ErrorCode::invalid_argument, function, false, why);
}

void Validator::reject(Operation operation, std::string const& why) const {
  fail(ErrorCode::invalid_argument, operation, why);
}

void Validator::check_color(int color, int none) const {
  if (color >= none) return;
  reject("split", fmt::format("color {} is negative; kNoColor ({}) leaves a rank out", color, none));
}

void Validator::reject_view(Operation operation, char const* what, ConstBufferView view) const {
  if (!is_valid(view.dtype)) {
    reject(operation, fmt::format("{} has unsupported data type {}", what, static_cast<int>(view.dtype)));
  }
  if (view.data == nullptr) reject(operation, fmt::format("{} is null but has {} elements", what, view.count));
  reject(operation, fmt::format("{} has {} elements, more than memory can hold", what, view.count));
}

Device Validator::device_of_either(Operation operation, ConstBufferView send, ConstBufferView recv) const {
  if (send.count == 0) return recv.device;
  if (recv.count == 0) return send.device;
  reject(operation, fmt::format("send is on {}, recv on {}; use buffers of one device", to_string(send.device),
                                to_string(recv.device)));
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

void Validator::check_parts(Operation operation, char const* what, ConstBufferView const& view, Parts const& parts,
                            bool written) const {
  auto const ranks = static_cast<std::size_t>(size);
  if (parts.counts.size() != ranks || (!parts.offsets.empty() && parts.offsets.size() != ranks)) {
    reject(operation,
           fmt::format("parts of {} need {} counts (one per rank) and as many offsets or none, not {} and {}", what,
                       ranks, parts.counts.size(), parts.offsets.size()));
  }
  std::size_t next = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const first = parts.offsets.empty() ? next : parts.offsets[r];
    if (first > view.count || parts.counts[r] > view.count - first) {
      reject(operation, fmt::format("rank {}'s part, {} elements from {}, lies outside {}, which has {}", r,
                                    parts.counts[r], first, what, view.count));
    }
    next = first + parts.counts[r];
  }
  if (!written || parts.offsets.empty()) return;
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = a + 1; b < ranks; ++b) {
      if (share_elements(parts, a, b)) {
        reject(operation, fmt::format("the parts of ranks {} and {} in {} overlap", a, b, what));
      }
    }
  }
}

void Validator::check_own_part_is_apart(Operation operation, Parts const& parts) const {
  if (parts.offsets.empty()) return;
  auto const own = static_cast<std::size_t>(rank);
  for (std::size_t r = 0; r < parts.counts.size(); ++r) {
    if (r != own && share_elements(parts, r, own)) {
      reject(operation, fmt::format("in place, but rank {}'s part of send overlaps this rank's; use separate buffers "
                                    "or parts that lie apart",
                                    r));
    }
  }
}

void Validator::check_count(Operation operation, char const* what, std::size_t count, std::size_t wanted) const {
  if (count != wanted) reject(operation, fmt::format("{} has {} elements, needs {}", what, count, wanted));
}

Call Validator::open(Operation operation, ConstBufferView const& send, BufferView const& recv) const {
  check_view(operation, "send", send);
  check_view(operation, "recv", recv);
  if (send.dtype != recv.dtype) [[unlikely]]
    reject(operation, fmt::format("send is {} but recv is {}", to_string(send.dtype), to_string(recv.dtype)));
  return {.contract = {.operation = operation, .dtype = send.dtype},
          .send = send.data,
          .recv = recv.data,
          .device = device_of(operation, send, recv)};
}

Call Validator::open(Operation operation, ConstBufferView const& send, BufferView const& recv, int root) const {
  auto call = open(operation, send, recv);
  set_root(call, root);
  return call;
}

Call Validator::open(Operation operation, ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                     ConstBufferView const& part) const {
  auto call = open(operation, send, recv);
  if (!supports(part.dtype, how.op()) || how.op() >= ReduceOp::premul_sum) [[unlikely]]
    examine_reduction(operation, how, part);
  call.contract.reduce = how.op();
  call.contract.variant = variant(how);
  call.scale = how.scale();
  call.user = how.function();
  return call;
}

void Validator::set_root(Call& call, int root) const {
  if (root < 0 || root >= size) [[unlikely]]
    reject(call.contract.operation, fmt::format("root {} is not a rank; ranks are 0 to {}", root, size - 1));
  call.contract.root = static_cast<std::uint32_t>(root);
}

void Validator::set_tag(Call& call, std::uint32_t tag) const {
  if (!may_have_tag(call.contract.operation)) {
    reject(call.contract.operation, fmt::format("tag {}: calls with a root and messages have no tag; leave it 0", tag));
  }
  // The product differs for every tag, so with equal parts different tags are always noticed.
  call.contract.root ^= has_parts_in_common(call.contract.operation) ? tag * 0x9e3779b1U : tag;
}

Call Validator::all_reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how) const {
  auto call = open(Operation::all_reduce, send, recv, how, recv);
  if (send.count != recv.count) [[unlikely]]
    reject(Operation::all_reduce, fmt::format("send has {} elements, recv has {}", send.count, recv.count));
  check_overlap(Operation::all_reduce, send, recv, send.data, recv.data);
  call.contract.count = send.count;
  return call;
}

Call Validator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, Reduction const& how) const {
  constexpr auto kOperation = Operation::reduce_scatter;
  auto call = open(kOperation, send, recv, how, recv);
  if (!is_part_of(recv.count, send.count, size)) {
    reject(kOperation, fmt::format("send has {} elements, needs {} (ranks) × {} (recv)", send.count, size, recv.count));
  }
  check_overlap(kOperation, send, recv, element(send, static_cast<std::size_t>(rank) * recv.count), recv.data);
  call.contract.count = recv.count;
  return call;
}

Call Validator::all_gather(ConstBufferView const& send, BufferView const& recv) const {
  constexpr auto kOperation = Operation::all_gather;
  auto call = open(kOperation, send, recv);
  if (!is_part_of(send.count, recv.count, size)) {
    reject(kOperation, fmt::format("recv has {} elements, needs {} (ranks) × {} (send)", recv.count, size, send.count));
  }
  check_overlap(kOperation, send, recv, send.data, element(recv, static_cast<std::size_t>(rank) * send.count));
  call.contract.count = send.count;
  return call;
}

Call Validator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                               Reduction const& how) const {
  constexpr auto kOperation = Operation::reduce_scatter_v;
  auto call = open(kOperation, send, recv, how, recv);
  check_parts(kOperation, "send", send, parts, false);
  check_count(kOperation, "recv", recv.count, parts.counts[static_cast<std::size_t>(rank)]);
  if (how.op() == ReduceOp::user) {
    for (auto const count : parts.counts) examine_reduction(kOperation, how, {send.data, count, send.dtype});
  }
  call.contract.count = total(parts);
  call.contract.root = fingerprint(parts.counts, parts.offsets);
  call.send_parts = parts;
  auto const* const own = at(send.data, call.part(parts, rank).offset);
  check_overlap(kOperation, send, recv, own, recv.data);
  if (recv.data == own && recv.count > 0) check_own_part_is_apart(kOperation, parts);
  return call;
}

Call Validator::all_gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts) const {
  constexpr auto kOperation = Operation::all_gather_v;
  auto call = open(kOperation, send, recv);
  check_parts(kOperation, "recv", recv, parts, true);
  check_count(kOperation, "send", send.count, parts.counts[static_cast<std::size_t>(rank)]);
  call.contract.count = total(parts);
  call.contract.root = fingerprint(parts.counts);
  call.recv_parts = parts;
  check_overlap(kOperation, send, recv, send.data, at(recv.data, call.part(parts, rank).offset));
  return call;
}

Call Validator::reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how, int root) const {
  constexpr auto kOperation = Operation::reduce;
  auto call = open(kOperation, send, recv, how, send);
  set_root(call, root);
  if (rank == root) {
    check_count(kOperation, "recv", recv.count, send.count);
    check_overlap(kOperation, send, recv, send.data, recv.data);
  }
  call.contract.count = send.count;
  return call;
}

Call Validator::gather(ConstBufferView const& send, BufferView const& recv, int root) const {
  constexpr auto kOperation = Operation::gather;
  auto call = open(kOperation, send, recv, root);
  if (rank == root) {
    check_count(kOperation, "recv", recv.count, send.count * static_cast<std::size_t>(size));
    check_overlap(kOperation, send, recv, send.data, element(recv, static_cast<std::size_t>(rank) * send.count));
  }
  call.contract.count = send.count;
  return call;
}

Call Validator::gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts, int root) const {
  constexpr auto kOperation = Operation::gather_v;
  auto call = open(kOperation, send, recv, root);
  call.own_bytes = send.bytes();
  if (rank == root) {
    check_parts(kOperation, "recv", recv, parts, true);
    call.recv_parts = parts;
    check_overlap(kOperation, send, recv, send.data, at(recv.data, call.part(parts, rank).offset));
  }
  return call;
}

Call Validator::scatter(ConstBufferView const& send, BufferView const& recv, int root) const {
  constexpr auto kOperation = Operation::scatter;
  auto call = open(kOperation, send, recv, root);
  if (rank == root) {
    check_count(kOperation, "send", send.count, recv.count * static_cast<std::size_t>(size));
    check_overlap(kOperation, send, recv, element(send, static_cast<std::size_t>(rank) * recv.count), recv.data);
  }
  call.contract.count = recv.count;
  return call;
}

Call Validator::scatter(ConstBufferView const& send, Parts const& parts, BufferView const& recv, int root) const {
  constexpr auto kOperation = Operation::scatter_v;
  auto call = open(kOperation, send, recv, root);
  call.own_bytes = recv.bytes();
  if (rank == root) {
    check_parts(kOperation, "send", send, parts, false);
    call.send_parts = parts;
    check_overlap(kOperation, send, recv, at(send.data, call.part(parts, rank).offset), recv.data);
  }
  return call;
}

Call Validator::all_to_all(ConstBufferView const& send, BufferView const& recv) const {
  constexpr auto kOperation = Operation::all_to_all;
  auto call = open(kOperation, send, recv);
  auto const ranks = static_cast<std::size_t>(size);
  if (send.count % ranks != 0)
    reject(kOperation, fmt::format("send has {} elements, which {} ranks cannot share equally", send.count, size));
  check_count(kOperation, "recv", recv.count, send.count);
  check_overlap(kOperation, send, recv, send.data, recv.data);
  call.contract.count = send.count / ranks;
  return call;
}

Call Validator::all_to_all(ConstBufferView const& send, Parts const& send_parts, BufferView const& recv,
                           Parts const& recv_parts) const {
  constexpr auto kOperation = Operation::all_to_all_v;
  auto call = open(kOperation, send, recv);
  check_parts(kOperation, "send", send, send_parts, false);
  check_parts(kOperation, "recv", recv, recv_parts, true);
  check_overlap(kOperation, send, recv, nullptr, this);
  call.send_parts = send_parts;
  call.recv_parts = recv_parts;
  return call;
}

Call Validator::scan(ConstBufferView const& send, BufferView const& recv, Reduction const& how, bool inclusive) const {
  auto const operation = inclusive ? Operation::scan : Operation::exscan;
  auto call = open(operation, send, recv, how, recv);
  if (how.op() == ReduceOp::avg) reject(operation, "avg has no meaning over some of the ranks; use sum");
  check_count(operation, "recv", recv.count, send.count);
  check_overlap(operation, send, recv, send.data, recv.data);
  call.contract.count = send.count;
  return call;
}

Call Validator::broadcast(BufferView const& buffer, int root) const {
  check_view(Operation::broadcast, "buffer", buffer);
  Call call{.contract = {.count = buffer.count, .operation = Operation::broadcast, .dtype = buffer.dtype},
            .send = buffer.data,
            .recv = buffer.data,
            .device = buffer.device};
  set_root(call, root);
  return call;
}

void Validator::check_peer(Operation operation, int peer) const {
  if (peer < 0 || peer >= size)
    reject(operation, fmt::format("there is no rank {}; ranks are 0 to {}", peer, size - 1));
}

void Validator::check_peer_is_another(Call const& call) const {
  auto const operation = call.contract.operation;
  if (operation == Operation::send_receive || !call.is_root(rank)) return;
  reject(
      operation,
      "by itself a rank cannot wait for a message from or to itself; make the send and the recv in one Group, or use "
      "send_recv");
}

Call Validator::send(ConstBufferView const& buffer, int to) const {
  check_view(Operation::send, "buffer", buffer);
  check_peer(Operation::send, to);
  return {.contract = {.count = buffer.count,
                       .root = static_cast<std::uint32_t>(to),
                       .operation = Operation::send,
                       .dtype = buffer.dtype},
          .send = buffer.data,
          .device = buffer.device};
}

Call Validator::recv(BufferView const& buffer, int from) const {
  check_view(Operation::receive, "buffer", buffer);
  check_peer(Operation::receive, from);
  return {.contract = {.count = buffer.count,
                       .root = static_cast<std::uint32_t>(from),
                       .operation = Operation::receive,
                       .dtype = buffer.dtype},
          .recv = buffer.data,
          .device = buffer.device};
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
          .recv = recv.data,
          .device = device_of(kOperation, send, recv)};
}

Call Validator::allocate(std::size_t count, DataType dtype, Device device) const {
  check_view(Operation::allocate, "buffer", ConstBufferView(this, count, dtype));
  return {.contract = {.count = count, .operation = Operation::allocate, .dtype = dtype}, .device = device};
}

void Validator::reject_options(std::string_view function, bool is_message, CollectiveOptions const& how,
                               Device device) const {
  if (how.timeout && !is_timeout(*how.timeout)) {
    fail(ErrorCode::invalid_argument, function, is_message,
         fmt::format("the timeout is {} ms; give one from 1 ms to a year, or none for the communicator's",
                     how.timeout->count()));
  }
  auto const on = to_string(how.stream->device());
  if (device.type == DeviceType::cpu) {
    fail(ErrorCode::unsupported, function, is_message,
         fmt::format("host memory needs a CPU stream, not one on {}", on));
  }
  fail(ErrorCode::invalid_argument, function, is_message,
       fmt::format("memory on {} needs a stream of that device (weft::cuda::make_stream), not one on {}",
                   to_string(device), on));
}

}  // namespace weft
