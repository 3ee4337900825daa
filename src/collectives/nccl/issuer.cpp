#include "collectives/nccl/issuer.hpp"

#include "runtime/cuda/check.hpp"
#include "weft/error.hpp"

namespace weft::nccl {
namespace {

std::byte const* at(void const* base, std::size_t bytes) noexcept {
  return static_cast<std::byte const*>(base) + bytes;
}
std::byte* at(void* base, std::size_t bytes) noexcept {
  return static_cast<std::byte*>(base) + bytes;
}

}  // namespace

// A group is still open, or resources are left, only when a call failed. NCCL then forgets the calls of the group.
Issuer::~Issuer() {
  while (depth_ > 0) {
    --depth_;
    static_cast<void>(nccl_.group_end());
  }
  for (auto const op : operators_) static_cast<void>(nccl_.red_op_destroy(op, handle_));
  if (staging_.empty()) return;
  try {
    give_back_staging();
  } catch (Error const&) {  // the context is gone, and its memory with it
  }
}

void Issuer::note_slowly(ncclResult_t result, char const* call) {
  if (result == ncclInProgress) in_progress_ = true;
  check(nccl_, result, call, handle_);
}

void Issuer::begin_group() {
  note(nccl_.group_start(), "ncclGroupStart");
  ++depth_;
}

void Issuer::end_group() {
  --depth_;
  note(nccl_.group_end(), "ncclGroupEnd");
}

void Issuer::finish() {
  if (in_progress_) [[unlikely]]
    communicator_.settle(ncclInProgress, "NCCL");
  for (; !operators_.empty(); operators_.pop_back())
    note(nccl_.red_op_destroy(operators_.back(), handle_), "ncclRedOpDestroy");
  if (!staging_.empty()) give_back_staging();
}

void Issuer::give_back_staging() {
  cuda::DefaultStreamGuard const guard(stream_);
  for (; !staging_.empty(); staging_.pop_back()) {
    auto const status = stream_.cuda().free_async(staging_.back(), stream_.handle());
    cuda::check(stream_.cuda(), status, "cudaFreeAsync");
  }
}

void Issuer::issue(Call const& call) {
  auto const count = call.contract.count;
  auto const root = static_cast<int>(call.contract.root);
  auto const [type, each] = elements_to_move(call.contract.dtype);
  auto* const on = stream_.handle();
  switch (call.contract.operation) {
    case Operation::all_reduce: return all_reduce(call);
    case Operation::reduce: return reduce(call);
    case Operation::reduce_scatter: return reduce_scatter(call);
    case Operation::reduce_scatter_v: return reduce_scatter_v(call);
    case Operation::all_gather:
      return note(nccl_.all_gather(call.send, call.recv, count * each, type, handle_, on), "ncclAllGather");
    case Operation::broadcast:
      return note(nccl_.broadcast(call.send, call.recv, count * each, type, root, handle_, on), "ncclBroadcast");
    case Operation::gather:
      return note(nccl_.gather(call.send, call.recv, count * each, type, root, handle_, on), "ncclGather");
    case Operation::scatter:
      return note(nccl_.scatter(call.send, call.recv, count * each, type, root, handle_, on), "ncclScatter");
    case Operation::all_to_all: return all_to_all(call);
    case Operation::all_gather_v: return all_gather_v(call);
    case Operation::gather_v: return gather_v(call);
    case Operation::scatter_v: return scatter_v(call);
    case Operation::all_to_all_v: return all_to_all_v(call);
    case Operation::barrier: return barrier();
    default: return;  // messages have their own overload; check_supported() refuses scans
  }
}

void Issuer::issue(Message const& message) {
  begin_group();
  if (message.direction == Message::Direction::send) {
    send(message.data, message.bytes, message.peer);
  } else {
    receive(message.data, message.bytes, message.peer);
  }
  end_group();
}

ncclRedOp_t Issuer::operator_for(Call const& call, ReducedElements const& how) {
  if (call.contract.reduce != ReduceOp::premul_sum) return how.op;
  auto scalar = scalar_of(call.scale, how.elements.type);
  ncclRedOp_t made = ncclSum;
  note(nccl_.red_op_create_pre_mul_sum(&made, scalar.bytes, how.elements.type, ncclScalarHostImmediate, handle_),
       "ncclRedOpCreatePreMulSum");
  operators_.push_back(made);
  return made;
}

void Issuer::all_reduce(Call const& call) {
  auto const how = elements_to_reduce(call);
  auto const count = call.contract.count * how.elements.each;
  note(nccl_.all_reduce(call.send, call.recv, count, how.elements.type, operator_for(call, how), handle_,
                        stream_.handle()),
       "ncclAllReduce");
}

void Issuer::reduce(Call const& call) {
  auto const how = elements_to_reduce(call);
  auto const count = call.contract.count * how.elements.each;
  note(nccl_.reduce(call.send, call.recv, count, how.elements.type, operator_for(call, how),
                    static_cast<int>(call.contract.root), handle_, stream_.handle()),
       "ncclReduce");
}

void Issuer::reduce_scatter(Call const& call) {
  auto const how = elements_to_reduce(call);
  auto const count = call.contract.count * how.elements.each;
  note(nccl_.reduce_scatter(call.send, call.recv, count, how.elements.type, operator_for(call, how), handle_,
                            stream_.handle()),
       "ncclReduceScatter");
}

/// NCCL has no such call, so this is one reduce for each rank.
void Issuer::reduce_scatter_v(Call const& call) {
  auto const how = elements_to_reduce(call);
  auto const op = operator_for(call, how);
  auto const element = size_of(call.contract.dtype);
  begin_group();
  for (int root = 0; root < size_; ++root) {
    auto const part = call.part(call.send_parts, root);
    if (part.length == 0) continue;
    note(nccl_.reduce(at(call.send, part.offset), call.recv, part.length / element * how.elements.each,
                      how.elements.type, op, root, handle_, stream_.handle()),
         "ncclReduce");
  }
  end_group();
}

void Issuer::send(void const* data, std::size_t bytes, int peer) {
  if (bytes == 0) return;
  note(nccl_.send(data, bytes, ncclUint8, peer, handle_, stream_.handle()), "ncclSend");
}

void Issuer::receive(void* data, std::size_t bytes, int peer) {
  if (bytes == 0) return;
  note(nccl_.recv(data, bytes, ncclUint8, peer, handle_, stream_.handle()), "ncclRecv");
}

void Issuer::copy(void* to, void const* from, std::size_t bytes) {
  if (to != from) stream_.copy(to, from, bytes);
}

void Issuer::all_gather_v(Call const& call) {
  auto const own = call.part(call.recv_parts, rank_);
  copy(at(call.recv, own.offset), call.send, own.length);
  begin_group();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    auto const part = call.part(call.recv_parts, peer);
    send(call.send, own.length, peer);
    receive(at(call.recv, part.offset), part.length, peer);
  }
  end_group();
}

void Issuer::gather_v(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  begin_group();
  if (rank_ != root) send(call.send, call.own_bytes, root);
  for (int peer = 0; rank_ == root && peer < size_; ++peer) {
    auto const part = call.part(call.recv_parts, peer);
    if (peer == rank_) {
      copy(at(call.recv, part.offset), call.send, part.length);
    } else {
      receive(at(call.recv, part.offset), part.length, peer);
    }
  }
  end_group();
}

void Issuer::scatter_v(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  begin_group();
  if (rank_ != root) receive(call.recv, call.own_bytes, root);
  for (int peer = 0; rank_ == root && peer < size_; ++peer) {
    auto const part = call.part(call.send_parts, peer);
    if (peer == rank_) {
      copy(call.recv, at(call.send, part.offset), part.length);
    } else {
      send(at(call.send, part.offset), part.length, peer);
    }
  }
  end_group();
}

/// ncclAlltoAll does not work in place, so an in-place call sends from a copy.
void Issuer::all_to_all(Call const& call) {
  auto const [type, each] = elements_to_move(call.contract.dtype);
  auto const* from = call.send;
  auto const bytes = call.bytes() * static_cast<std::size_t>(size_);
  if (call.send == call.recv && bytes > 0) {
    auto const& cuda = stream_.cuda();
    cuda::DeviceGuard const guard(stream_.device().index, cuda);
    void* copied = nullptr;
    cuda::check(cuda, cuda.malloc_async(&copied, bytes, stream_.handle()), "cudaMallocAsync");
    staging_.push_back(copied);
    stream_.copy(copied, call.send, bytes);
    from = copied;
  }
  note(nccl_.all_to_all(from, call.recv, call.contract.count * each, type, handle_, stream_.handle()), "ncclAlltoAll");
}

void Issuer::all_to_all_v(Call const& call) {
  begin_group();
  for (int peer = 0; peer < size_; ++peer) {
    auto const given = call.part(call.send_parts, peer);
    auto const got = call.part(call.recv_parts, peer);
    if (peer == rank_) {
      copy(at(call.recv, got.offset), at(call.send, given.offset), got.length);
    } else {
      send(at(call.send, given.offset), given.length, peer);
      receive(at(call.recv, got.offset), got.length, peer);
    }
  }
  end_group();
}

/// An all_reduce of one element: no rank passes it before all ranks have come.
void Issuer::barrier() {
  note(nccl_.all_reduce(scratch_, scratch_, 1, ncclInt32, ncclSum, handle_, stream_.handle()), "ncclAllReduce");
}

}  // namespace weft::nccl
