#include "collectives/validation.hpp"

#include <fmt/format.h>

#include <limits>

#include "weft/error.hpp"

namespace weft {
namespace {

std::byte const* end_of(ConstBufferView const& view) {
  return static_cast<std::byte const*>(view.data) + view.bytes();
}

std::byte const* element(ConstBufferView const& view, std::size_t index) {
  return static_cast<std::byte const*>(view.data) + index * size_of(view.dtype);
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

void Validator::check_op(Operation operation, ReduceOp op) const {
  if (!is_valid(op)) reject(operation, fmt::format("unsupported reduce op {}", static_cast<int>(op)));
}

Call Validator::all_reduce(ConstBufferView const& send, BufferView const& recv, ReduceOp op) const {
  constexpr auto kOperation = Operation::all_reduce;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_op(kOperation, op);
  if (send.count != recv.count)
    reject(kOperation, fmt::format("send has {} elements, recv has {}", send.count, recv.count));
  check_overlap(kOperation, send, recv, send.data, recv.data);
  return {.contract = {.count = send.count, .operation = kOperation, .dtype = send.dtype, .reduce = op},
          .send = send.data,
          .recv = recv.data};
}

Call Validator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, ReduceOp op) const {
  constexpr auto kOperation = Operation::reduce_scatter;
  check_view(kOperation, "send", send);
  check_view(kOperation, "recv", recv);
  check_same_type(kOperation, send, recv);
  check_op(kOperation, op);
  auto const ranks = static_cast<std::size_t>(size);
  if (send.count / ranks != recv.count || send.count % ranks != 0) {
    reject(kOperation, fmt::format("send has {} elements, needs {} (ranks) × {} (recv)", send.count, size, recv.count));
  }
  check_overlap(kOperation, send, recv, element(send, static_cast<std::size_t>(rank) * recv.count), recv.data);
  return {.contract = {.count = recv.count, .operation = kOperation, .dtype = send.dtype, .reduce = op},
          .send = send.data,
          .recv = recv.data};
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

Call Validator::broadcast(BufferView const& buffer, int root) const {
  constexpr auto kOperation = Operation::broadcast;
  check_view(kOperation, "buffer", buffer);
  if (root < 0 || root >= size)
    reject(kOperation, fmt::format("root {} is not a rank; ranks are 0 to {}", root, size - 1));
  return {.contract = {.count = buffer.count,
                       .root = static_cast<std::uint32_t>(root),
                       .operation = kOperation,
                       .dtype = buffer.dtype},
          .send = buffer.data,
          .recv = buffer.data};
}

Call Validator::allocate(std::size_t count, DataType dtype) const {
  constexpr auto kOperation = Operation::allocate;
  check_view(kOperation, "buffer", {this, count, dtype});
  return {.contract = {.count = count, .operation = kOperation, .dtype = dtype}};
}

}  // namespace weft
