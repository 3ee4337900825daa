#include "common/weft_calls.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/reference.hpp"
#include "core/host_identity.hpp"
#include "runtime/stream_impl.hpp"

namespace weft::perf {
namespace {

/// A call together with everything that stays the same from one call to the next.
struct Prepared {
  Communicator& communicator;
  Operands on;
  ConstBufferView send;
  BufferView buffer;  ///< a broadcast's
  Reduction op;
  int root;
  CollectiveOptions options;
};

Work start_send_recv(Prepared const& one) {
  int const ranks = one.communicator.size();
  int const next = (one.communicator.rank() + 1) % ranks;
  int const previous = (one.communicator.rank() + ranks - 1) % ranks;
  return one.communicator.send_recv(one.send, next, one.on.recv, previous, one.options);
}

void place_own_part(Operands const& on, int rank, std::optional<Stream> const& stream) {
  auto const own = on.recv.slice(static_cast<std::size_t>(rank) * on.send.count, on.send.count);
  if (own.data == on.send.data || on.send.count == 0) return;
  if (stream) return stream->impl().copy(own.data, on.send.data, on.send.bytes());
  std::memcpy(own.data, on.send.data, on.send.bytes());
}

/// Calls on one stream run in order, so the last one's Work stands for all.
Work start_hypercube(Prepared const& one) {
  auto const& on = one.on;
  int const rank = one.communicator.rank();
  place_own_part(on, rank, one.options.stream);
  Work last;
  for (int mask = 1; mask < one.communicator.size(); mask *= 2) {
    auto const mine = static_cast<std::size_t>(rank & ~(mask - 1));
    auto const theirs = mine ^ static_cast<std::size_t>(mask);
    auto const length = on.send.count * static_cast<std::size_t>(mask);
    last = one.communicator.send_recv(on.recv.slice(mine * on.send.count, length), rank ^ mask,
                                      on.recv.slice(theirs * on.send.count, length), rank ^ mask, one.options);
  }
  return last;
}

Reduction reduction_of(ReduceOp op, int rank) {
  return op == ReduceOp::premul_sum ? Reduction::premul_sum(mulsum_scale(rank)) : Reduction(op);
}

Prepared prepare(Communicator& communicator, Operands const& on, CallOptions const& options) {
  int const rank = communicator.rank();
  return {.communicator = communicator,
          .on = on,
          .send = on.send,
          .buffer = rank == options.root ? on.send : on.recv,
          .op = reduction_of(options.op, rank),
          .root = options.root,
          .options = options.collective};
}

/// Calls use(start), where start(Prepared const&) makes the call.
template <typename Use>
auto with_start(Op what, Use use) {
  switch (what) {
    case Op::all_reduce:
      return use(
          [](Prepared const& one) { return one.communicator.all_reduce(one.send, one.on.recv, one.op, one.options); });
    case Op::all_gather:
      return use([](Prepared const& one) { return one.communicator.all_gather(one.send, one.on.recv, one.options); });
    case Op::reduce_scatter:
      return use([](Prepared const& one) {
        return one.communicator.reduce_scatter(one.send, one.on.recv, one.op, one.options);
      });
    case Op::broadcast:
      return use([](Prepared const& one) { return one.communicator.broadcast(one.buffer, one.root, one.options); });
    case Op::reduce:
      return use([](Prepared const& one) {
        return one.communicator.reduce(one.send, one.on.recv, one.op, one.root, one.options);
      });
    case Op::all_to_all:
      return use([](Prepared const& one) { return one.communicator.all_to_all(one.send, one.on.recv, one.options); });
    case Op::gather:
      return use(
          [](Prepared const& one) { return one.communicator.gather(one.send, one.on.recv, one.root, one.options); });
    case Op::scatter:
      return use(
          [](Prepared const& one) { return one.communicator.scatter(one.send, one.on.recv, one.root, one.options); });
    case Op::send_recv: return use([](Prepared const& one) { return start_send_recv(one); });
    case Op::hypercube: break;
  }
  return use([](Prepared const& one) { return start_hypercube(one); });
}

}  // namespace

Work start_weft(Op what, Communicator& communicator, Operands const& on, CallOptions const& options) {
  return with_start(what, [&](auto start) { return start(prepare(communicator, on, options)); });
}

std::function<void()> weft_call(Op what, Communicator& communicator, Operands const& on, CallOptions const& options) {
  return with_start(what, [&](auto start) -> std::function<void()> {
    return [start, one = prepare(communicator, on, options)] { start(one); };
  });
}

std::vector<std::string> tell_all(Communicator& communicator, std::string_view mine) {
  constexpr std::size_t kLongest = 256;
  auto given = Buffer::host(kLongest, DataType::u8);
  auto got = Buffer::host(kLongest * static_cast<std::size_t>(communicator.size()), DataType::u8);
  std::memset(given.data(), 0, kLongest);
  std::memcpy(given.data(), mine.data(), std::min(mine.size(), kLongest - 1));
  communicator.all_gather(given.view(), got.view()).wait();
  std::vector<std::string> all;
  for (std::size_t at = 0; at < got.view().bytes(); at += kLongest) {
    all.emplace_back(static_cast<char const*>(got.data()) + at);
  }
  return all;
}

bool are_on_one_host(Communicator& communicator) {
  auto const hosts = tell_all(communicator, host_identity(*communicator.options().config));
  return std::all_of(hosts.begin(), hosts.end(), [&](auto const& host) { return host == hosts.front(); });
}

Meeting meeting_of(Communicator& communicator) {
  auto broadcast = [&communicator](std::span<std::int64_t> values) {
    auto buffer = Buffer::host(values.size(), DataType::i64);
    std::copy(values.begin(), values.end(), buffer.as<std::int64_t>().begin());
    communicator.broadcast(buffer.view(), 0).wait();
    std::copy_n(buffer.as<std::int64_t>().begin(), values.size(), values.begin());
  };
  auto all_gather = [&communicator](std::span<double const> mine, std::span<double> all) {
    auto given = Buffer::host(mine.size(), DataType::f64);
    auto got = Buffer::host(all.size(), DataType::f64);
    std::copy(mine.begin(), mine.end(), given.as<double>().begin());
    communicator.all_gather(given.view(), got.view()).wait();
    std::copy_n(got.as<double>().begin(), all.size(), all.begin());
  };
  return {communicator.rank(),
          communicator.size(),
          broadcast,
          [&communicator] { communicator.barrier().wait(); },
          are_on_one_host(communicator),
          all_gather,
          communicator.options().config->timeout};
}

}  // namespace weft::perf
