#include "cuda/nccl_calls.hpp"

#include "collectives/call.hpp"
#include "collectives/nccl/nccl_types.hpp"
#include "common/reference.hpp"
#include "runtime/stream_impl.hpp"
#include "weft/cuda.hpp"

namespace weft::perf {
namespace {

/// NCCL's count of a view's elements where the rank's part is `view`, and their type.
struct Counted {
  ncclDataType_t type;
  std::size_t count;
};

Counted counted(BufferView view) {
  auto const [type, each] = nccl::elements_to_move(view.dtype);
  return {type, view.count * each};
}

nccl::ReducedElements reduced_elements(BufferView view, ReduceOp op) {
  Call call;
  call.contract.operation = Operation::all_reduce;
  call.contract.dtype = view.dtype;
  call.contract.reduce = op;
  call.device = view.device;
  return nccl::elements_to_reduce(call);
}

}  // namespace

NcclCalls::NcclCalls(nccl::NcclCommunicator& communicator, Stream const& stream)
    : communicator_(communicator),
      nccl_(communicator.nccl()),
      handle_(nccl::NcclCommunicator::Use(communicator).handle()),
      stream_(stream),
      on_(cuda::handle_of(stream)) {}

std::function<void()> NcclCalls::call(Case const& what, Operands const& on, ReduceOp op, Place place) const {
  auto const body = what.reduces() ? reducing_call(what.op(), on, op, place) : moving_call(what.op(), on, place);
  return [this, body] { issue(body); };
}

std::function<void()> NcclCalls::grouped(std::function<void()> const& one, int calls) const {
  if (calls == 1) return one;
  return [this, one, calls] {
    issue([&] {
      check(nccl_.group_start(), "ncclGroupStart");
      for (int i = 0; i < calls; ++i) one();
      check(nccl_.group_end(), "ncclGroupEnd");
    });
  };
}

std::function<void()> NcclCalls::reducing_call(Op what, Operands const& on, ReduceOp op, Place place) const {
  auto const how = reduced_elements(on.send, op);
  auto const type = how.elements.type;
  auto const count = (what == Op::reduce_scatter ? on.recv.count : on.send.count) * how.elements.each;
  auto const launch = [this, what, on, type, count, root = place.root](ncclRedOp_t with) {
    if (what == Op::all_reduce)
      return check(nccl_.all_reduce(on.send.data, on.recv.data, count, type, with, handle_, on_), "ncclAllReduce");
    if (what == Op::reduce)
      return check(nccl_.reduce(on.send.data, on.recv.data, count, type, with, root, handle_, on_), "ncclReduce");
    check(nccl_.reduce_scatter(on.send.data, on.recv.data, count, type, with, handle_, on_), "ncclReduceScatter");
  };
  if (op != ReduceOp::premul_sum) return [launch, with = how.op] { launch(with); };
  return [this, launch, type, scalar = nccl::scalar_of(mulsum_scale(place.rank), type)]() mutable {
    ncclRedOp_t with = ncclSum;
    check(nccl_.red_op_create_pre_mul_sum(&with, scalar.bytes, type, ncclScalarHostImmediate, handle_),
          "ncclRedOpCreatePreMulSum");
    launch(with);
    settle();
    check(nccl_.red_op_destroy(with, handle_), "ncclRedOpDestroy");
  };
}

std::function<void()> NcclCalls::moving_call(Op what, Operands const& on, Place place) const {
  auto const [type, sent] = counted(on.send);
  auto const parts = static_cast<std::size_t>(place.ranks);
  auto const root = place.root;
  switch (what) {
    case Op::all_gather:
      return [=, this, type = type, sent = sent] {
        check(nccl_.all_gather(on.send.data, on.recv.data, sent, type, handle_, on_), "ncclAllGather");
      };
    case Op::all_to_all:
      return [=, this, type = type, each = sent / parts] {
        check(nccl_.all_to_all(on.send.data, on.recv.data, each, type, handle_, on_), "ncclAlltoAll");
      };
    case Op::gather:
      return [=, this, type = type, sent = sent] {
        check(nccl_.gather(on.send.data, on.recv.data, sent, type, root, handle_, on_), "ncclGather");
      };
    case Op::scatter:
      return [=, this, type = type, each = counted(on.recv).count] {
        check(nccl_.scatter(on.send.data, on.recv.data, each, type, root, handle_, on_), "ncclScatter");
      };
    case Op::broadcast:  // as Weft's broadcast: the root's receive buffer is not used
      return [this, type = type, at = place.is_root() ? on.send : on.recv, root] {
        check(nccl_.broadcast(at.data, at.data, counted(at).count, type, root, handle_, on_), "ncclBroadcast");
      };
    case Op::hypercube: return [=, this] { hypercube(on, place); };
    default: break;
  }
  int const next = (place.rank + 1) % place.ranks;
  int const previous = (place.rank + place.ranks - 1) % place.ranks;
  return [=, this] { exchange(on.send, next, on.recv, previous); };
}

void NcclCalls::exchange(BufferView send, int to, BufferView recv, int from) const {
  auto const [type, sent] = counted(send);
  check(nccl_.group_start(), "ncclGroupStart");
  check(nccl_.send(send.data, sent, type, to, handle_, on_), "ncclSend");
  check(nccl_.recv(recv.data, counted(recv).count, type, from, handle_, on_), "ncclRecv");
  check(nccl_.group_end(), "ncclGroupEnd");
}

void NcclCalls::hypercube(Operands const& on, Place place) const {
  auto const part = [&](std::size_t first, std::size_t parts) {
    return on.recv.slice(first * on.send.count, parts * on.send.count);
  };
  auto const rank = static_cast<std::size_t>(place.rank);
  if (part(rank, 1).data != on.send.data) stream_.impl().copy(part(rank, 1).data, on.send.data, on.send.bytes());
  for (int mask = 1; mask < place.ranks; mask *= 2) {
    auto const parts = static_cast<std::size_t>(mask);
    auto const mine = rank & ~(parts - 1);
    exchange(part(mine, parts), place.rank ^ mask, part(mine ^ parts, parts), place.rank ^ mask);
    settle();
  }
}

}  // namespace weft::perf
