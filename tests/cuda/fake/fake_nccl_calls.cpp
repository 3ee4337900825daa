// What FakeNccl's communicators are used for: groups, collectives, messages, operators and memory.
#include "cuda/fake/fake_nccl_calls.hpp"

#include <cstring>
#include <limits>

namespace weft::test {
namespace {

double value_of(void const* scalar, ncclDataType_t type) {
  auto const as = [&](auto value) {
    std::memcpy(&value, scalar, sizeof value);
    return static_cast<double>(value);
  };
  switch (type) {
    case ncclInt8: return as(std::int8_t{});
    case ncclUint8: return as(std::uint8_t{});
    case ncclInt32: return as(std::int32_t{});
    case ncclUint32: return as(std::uint32_t{});
    case ncclInt64: return as(std::int64_t{});
    case ncclUint64: return as(std::uint64_t{});
    case ncclFloat32: return as(float{});
    case ncclFloat64: return as(double{});
    case ncclFloat8e4m3: return static_cast<double>(to_float(Float8E4M3{*static_cast<std::uint8_t const*>(scalar)}));
    case ncclFloat8e5m2: return static_cast<double>(to_float(Float8E5M2{*static_cast<std::uint8_t const*>(scalar)}));
    default: break;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, scalar, sizeof bits);
  return static_cast<double>(type == ncclFloat16 ? to_float(Half{bits}) : to_float(BFloat16{bits}));
}

}  // namespace

thread_local int FakeNcclCalls::depth = 0;
thread_local std::vector<FakeNcclCalls::Queued> FakeNcclCalls::queued;

ncclResult_t FakeNcclCalls::group_start() {
  auto const failure = begin("ncclGroupStart", nullptr);
  ++depth;
  return failure;
}

ncclResult_t FakeNcclCalls::group_end() {
  auto const failure = begin("ncclGroupEnd", nullptr);
  if (depth == 0) {
    gpu().violate("ncclGroupEnd without ncclGroupStart");
    return ncclInvalidUsage;
  }
  if (--depth > 0) return failure;
  auto const all = std::exchange(queued, {});
  if (failure != ncclSuccess) return failure;
  std::vector<std::pair<std::uint64_t, FakePart>> parts;
  for (auto const& one : all) {
    parts.emplace_back(one.number, one.part);
    if (one.stream != all.front().stream) gpu().violate("a group of calls on several streams");
  }
  return all.empty() ? ncclSuccess : launch(all.front().comm, all.front().stream, std::move(parts));
}

ncclResult_t FakeNcclCalls::launch(std::shared_ptr<Comm> const& comm, cudaStream_t stream,
                                   std::vector<std::pair<std::uint64_t, FakePart>> parts) {
  if (comm->group->size == 1 || fake().polls == 0) return launch_now(comm, stream, std::move(parts)), ncclSuccess;
  std::scoped_lock const lock(fake().mutex_);
  comm->launches.emplace_back([comm, stream, parts = std::move(parts)] { launch_now(comm, stream, parts); });
  return go_on(*comm);
}

void FakeNcclCalls::launch_now(std::shared_ptr<Comm> const& comm, cudaStream_t stream,
                               std::vector<std::pair<std::uint64_t, FakePart>> parts) {
  auto const& ending = gpu().ending();
  // What is in a graph meets anew each time the graph runs.
  bool const captured = gpu().is_capturing(stream);
  gpu().enqueue(stream, [comm, parts = std::move(parts), &ending, captured]() mutable {
    run_parts(comm, parts, ending);
    if (!captured) return;
    for (auto& [number, part] : parts) number += std::uint64_t{1} << 32U;
  });
}

ncclResult_t FakeNcclCalls::call(char const* name, FakePart part, ncclComm_t handle, cudaStream_t stream) {
  auto const bytes = part.count * size_of(part.type);
  if (auto const failure = begin(name, stream, bytes); failure != ncclSuccess) return failure;
  auto const comm = comm_of(handle, name);
  if (!comm) return ncclInvalidArgument;
  Inside const inside(*comm, name);
  if (comm->stopped || comm->finalized || !is_free(*comm, name)) return ncclInvalidUsage;
  std::uint64_t number = 0;
  {
    std::scoped_lock const lock(fake().mutex_);
    auto const made = fake().scales_.find(static_cast<int>(part.reduce));
    part.scaled = made != fake().scales_.end();
    if (part.scaled) part.scale = made->second;
    if (part.op != FakeOp::send && part.op != FakeOp::recv) number = ++comm->calls;
  }
  if (depth == 0) return launch(comm, stream, {{number, part}});
  queued.push_back({comm, stream, number, part});
  return ncclSuccess;
}

ncclResult_t FakeNcclCalls::all_reduce(void const* send, void* recv, std::size_t count, ncclDataType_t type,
                                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllReduce", {FakeOp::all_reduce, send, recv, count, type, op}, comm, stream);
}

ncclResult_t FakeNcclCalls::reduce(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduce", {FakeOp::reduce, send, recv, count, type, op, 1, false, root}, comm, stream);
}

ncclResult_t FakeNcclCalls::reduce_scatter(void const* send, void* recv, std::size_t count, ncclDataType_t type,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduceScatter", {FakeOp::reduce_scatter, send, recv, count, type, op}, comm, stream);
}

ncclResult_t FakeNcclCalls::all_gather(void const* send, void* recv, std::size_t count, ncclDataType_t type,
                                       ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllGather", {FakeOp::all_gather, send, recv, count, type}, comm, stream);
}

ncclResult_t FakeNcclCalls::broadcast(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                                      ncclComm_t comm, cudaStream_t stream) {
  return call("ncclBroadcast", {FakeOp::broadcast, send, recv, count, type, ncclSum, 1, false, root}, comm, stream);
}

ncclResult_t FakeNcclCalls::all_to_all(void const* send, void* recv, std::size_t count, ncclDataType_t type,
                                       ncclComm_t comm, cudaStream_t stream) {
  if (send == recv && count > 0) gpu().violate("ncclAlltoAll in place");
  return call("ncclAlltoAll", {FakeOp::all_to_all, send, recv, count, type}, comm, stream);
}

ncclResult_t FakeNcclCalls::gather(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                                   ncclComm_t comm, cudaStream_t stream) {
  return call("ncclGather", {FakeOp::gather, send, recv, count, type, ncclSum, 1, false, root}, comm, stream);
}

ncclResult_t FakeNcclCalls::scatter(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t stream) {
  return call("ncclScatter", {FakeOp::scatter, send, recv, count, type, ncclSum, 1, false, root}, comm, stream);
}

ncclResult_t FakeNcclCalls::send(void const* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
  return call("ncclSend", {FakeOp::send, data, nullptr, count, type, ncclSum, 1, false, peer}, comm, stream);
}

ncclResult_t FakeNcclCalls::recv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
  return call("ncclRecv", {FakeOp::recv, nullptr, data, count, type, ncclSum, 1, false, peer}, comm, stream);
}

ncclResult_t FakeNcclCalls::make_operator(ncclRedOp_t* made, void* scalar, ncclDataType_t type,
                                          ncclScalarResidence_t residence, ncclComm_t /*comm*/) {
  if (residence != ncclScalarHostImmediate) gpu().violate("a scalar on the device");
  auto const failure = begin("ncclRedOpCreatePreMulSum", nullptr);
  std::scoped_lock const lock(fake().mutex_);
  *made = static_cast<ncclRedOp_t>(++fake().operators_);
  fake().scales_[fake().operators_] = value_of(scalar, type);
  return failure;
}

ncclResult_t FakeNcclCalls::destroy_operator(ncclRedOp_t op, ncclComm_t /*comm*/) {
  if (depth > 0) gpu().violate("an operator was destroyed before its group ended");
  std::scoped_lock const lock(fake().mutex_);
  return fake().scales_.erase(static_cast<int>(op)) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t FakeNcclCalls::mem_alloc(void** memory, std::size_t bytes) {
  if (auto const failure = begin("ncclMemAlloc", nullptr, bytes); failure != ncclSuccess) return failure;
  *memory = gpu().take_memory(bytes, 4096);
  return *memory == nullptr ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t FakeNcclCalls::mem_free(void* memory) {
  begin("ncclMemFree", nullptr);
  {
    std::scoped_lock const lock(fake().mutex_);
    for (auto const& [handle, comm] : fake().comms_) {
      if (!comm->stopped && comm->windows.count(memory) != 0) gpu().violate("memory was freed that has a window");
    }
  }
  gpu().return_memory(memory);
  return ncclSuccess;
}

ncclResult_t FakeNcclCalls::window_register(ncclComm_t handle, void* memory, std::size_t bytes, ncclWindow_t* window,
                                            int flags) {
  if (auto const failure = begin("ncclCommWindowRegister", handle, bytes); failure != ncclSuccess) return failure;
  auto const comm = comm_of(handle, "ncclCommWindowRegister");
  if (!comm) return ncclInvalidArgument;
  Inside const inside(*comm, "ncclCommWindowRegister");
  if (!is_free(*comm, "ncclCommWindowRegister")) return ncclInvalidUsage;
  if (reinterpret_cast<std::uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT != 0 || flags != NCCL_WIN_COLL_SYMMETRIC)
    gpu().violate("a window that NCCL does not take");
  *window = nullptr;
  go_on(*comm);
  if (fake().windows_hang) comm->polls_left = std::numeric_limits<int>::max();
  if (fake().without_windows) return ncclSuccess;
  fill_later(*comm, [window, memory, comm = comm.get()] {
    *window = reinterpret_cast<ncclWindow_t>(memory);
    std::scoped_lock const lock(fake().mutex_);  // mem_free() looks at those of all
    comm->windows.insert(memory);
  });
  return ncclSuccess;  // though the communicator is in progress
}

ncclResult_t FakeNcclCalls::window_deregister(ncclComm_t handle, ncclWindow_t window) {
  if (auto const failure = begin("ncclCommWindowDeregister", handle); failure != ncclSuccess) return failure;
  auto const comm = comm_of(handle, "ncclCommWindowDeregister");
  if (!comm) return ncclInvalidArgument;
  Inside const inside(*comm, "ncclCommWindowDeregister");
  if (!is_free(*comm, "ncclCommWindowDeregister")) return ncclInvalidUsage;
  fill_later(*comm, [window, comm = comm.get()] {
    std::scoped_lock const lock(fake().mutex_);
    comm->windows.erase(window);
  });
  return go_on(*comm);
}

}  // namespace weft::test
