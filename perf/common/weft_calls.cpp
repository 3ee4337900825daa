#include "common/weft_calls.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/reference.hpp"
#include "core/host_identity.hpp"
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
