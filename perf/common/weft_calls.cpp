#include "common/weft_calls.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/reference.hpp"
#include "runtime/stream_impl.hpp"

namespace weft::perf {
namespace {

Work start_send_recv(Communicator& communicator, Operands const& on, CollectiveOptions const& options) {
  int const ranks = communicator.size();
  int const next = (communicator.rank() + 1) % ranks;
  int const previous = (communicator.rank() + ranks - 1) % ranks;
  return communicator.send_recv(on.send, next, on.recv, previous, options);
}

void place_own_part(Operands const& on, int rank, std::optional<Stream> const& stream) {
  auto const own = on.recv.slice(static_cast<std::size_t>(rank) * on.send.count, on.send.count);
  if (own.data == on.send.data || on.send.count == 0) return;
  if (stream) return stream->impl().copy(own.data, on.send.data, on.send.bytes());
  std::memcpy(own.data, on.send.data, on.send.bytes());
}

/// Calls on one stream run in order, so the last one's Work stands for all.
Work start_hypercube(Communicator& communicator, Operands const& on, CollectiveOptions const& options) {
  int const rank = communicator.rank();
  place_own_part(on, rank, options.stream);
  Work last;
  for (int mask = 1; mask < communicator.size(); mask *= 2) {
    auto const mine = static_cast<std::size_t>(rank & ~(mask - 1));
    auto const theirs = mine ^ static_cast<std::size_t>(mask);
    auto const length = on.send.count * static_cast<std::size_t>(mask);
    last = communicator.send_recv(on.recv.slice(mine * on.send.count, length), rank ^ mask,
                                  on.recv.slice(theirs * on.send.count, length), rank ^ mask, options);
  }
  return last;
}

Reduction reduction_of(ReduceOp op, int rank) {
  return op == ReduceOp::premul_sum ? Reduction::premul_sum(mulsum_scale(rank)) : Reduction(op);
}

}  // namespace

Work start_weft(Op what, Communicator& communicator, Operands const& on, CallOptions const& options) {
  auto const& collective = options.collective;
  auto const op = reduction_of(options.op, communicator.rank());
  switch (what) {
    case Op::all_reduce: return communicator.all_reduce(on.send, on.recv, op, collective);
    case Op::all_gather: return communicator.all_gather(on.send, on.recv, collective);
    case Op::reduce_scatter: return communicator.reduce_scatter(on.send, on.recv, op, collective);
    case Op::broadcast: {
      bool const sends = communicator.rank() == options.root;
      return communicator.broadcast(sends ? on.send : on.recv, options.root, collective);
    }
    case Op::reduce: return communicator.reduce(on.send, on.recv, op, options.root, collective);
    case Op::all_to_all: return communicator.all_to_all(on.send, on.recv, collective);
    case Op::gather: return communicator.gather(on.send, on.recv, options.root, collective);
    case Op::scatter: return communicator.scatter(on.send, on.recv, options.root, collective);
    case Op::send_recv: return start_send_recv(communicator, on, collective);
    case Op::hypercube: return start_hypercube(communicator, on, collective);
  }
  return {};
}

Meeting meeting_of(Communicator& communicator) {
  auto broadcast = [&communicator](std::span<std::int64_t> values) {
    auto buffer = Buffer::host(values.size(), DataType::i64);
    std::copy(values.begin(), values.end(), buffer.as<std::int64_t>().begin());
    communicator.broadcast(buffer.view(), 0).wait();
    std::copy_n(buffer.as<std::int64_t>().begin(), values.size(), values.begin());
  };
  return {communicator.rank(), communicator.size(), broadcast, [&communicator] { communicator.barrier().wait(); }};
}

}  // namespace weft::perf
