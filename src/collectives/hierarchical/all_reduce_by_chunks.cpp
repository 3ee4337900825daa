// all_reduce over two hosts of equally many ranks, chunk by chunk through both levels: each rank combines its slice of
// a chunk with the ranks of its host, exchanges it with its counterpart on the other host, combines both, and shares
// the result with its host. All ranks of a host use its link at once, and while some chunks cross it, others are
// combined and shared inside. On the wire, per host: B each way, in one step.
#include <algorithm>

#include "collectives/hierarchical/column.hpp"
#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/p2p/rank_order.hpp"
#include "collectives/shm/partition.hpp"

namespace weft::hierarchical {

using shm::at;

bool HierarchicalBackend::goes_by_chunks(Call const& call) const noexcept {
  return call.contract.operation == weft::Operation::all_reduce && between_ && layout_.hosts().size() == 2 &&
         layout_.is_even() && combines_by_host(call) && !is_rounded(call);
}

/// Elements of a chunk, whose slices are whole cache lines: `slice` to each rank of a host.
struct HierarchicalBackend::Slices {
  std::size_t count;  // of the buffer
  std::size_t slice;
  std::size_t locals;
  std::size_t element;

  [[nodiscard]] std::size_t chunks() const noexcept { return shm::ceil_div(count, slice * locals); }
  [[nodiscard]] Range operator()(std::size_t chunk, std::size_t local) const noexcept {
    auto const whole = shm::block_of(count, chunk, slice * locals);
    auto const part = shm::part_of(whole.count, local, locals, element);
    return {whole.first + part.first, part.count};
  }
  /// Of a local rank, in all chunks.
  [[nodiscard]] std::size_t total(std::size_t local) const noexcept {
    return (chunks() - 1) * slice + (*this)(chunks() - 1, local).count;
  }
  [[nodiscard]] PartArrays parts(std::size_t chunk) const {
    PartArrays all;
    for (std::size_t local = 0; local < locals; ++local) {
      auto const range = (*this)(chunk, local);
      all.add(range.first, range.count);
    }
    return all;
  }
};

void HierarchicalBackend::combine_slice(Call const& call, Slices const& slices, std::size_t chunk, void* partials) {
  auto const parts = slices.parts(chunk);
  auto scatter = inner(call, weft::Operation::reduce_scatter_v, parts.total());
  scatter.contract.reduce = HostOrder::levels(call.contract.reduce).inside;
  scatter.scale = call.scale;
  scatter.send = call.send;
  scatter.recv = at(partials, chunk * slices.slice * slices.element);
  scatter.send_parts = parts.parts();
  run_intra(scatter, &Backend::reduce_scatter);
}

void HierarchicalBackend::share_slice(Call const& call, Slices const& slices, std::size_t chunk) {
  auto const parts = slices.parts(chunk);
  auto const own = slices(chunk, static_cast<std::size_t>(layout_.local_index(rank())));
  auto gather = inner(call, weft::Operation::all_gather_v, parts.total());
  gather.send = at(call.recv, own.first * slices.element);
  gather.recv = call.recv;
  gather.recv_parts = parts.parts();
  run_intra(gather, &Backend::all_gather);
}

void HierarchicalBackend::all_reduce_by_chunks(Call const& call) {
  auto const local = static_cast<std::size_t>(layout_.local_index(rank()));
  auto const element = size_of(call.contract.dtype);
  Slices const slices{call.contract.count, kSlice / element, layout_.locals().size(), element};
  auto const total = slices.total(local);
  auto const partials = workspace(std::max<std::size_t>(total, 1), call.contract.dtype);
  auto const ahead = std::min(p2p::RankOrder::kAhead, slices.chunks());
  for (std::size_t chunk = 0; chunk < ahead; ++chunk) combine_slice(call, slices, chunk, partials.data());

  auto crossing = inner(call, weft::Operation::all_reduce, total);
  crossing.contract.reduce = HostOrder::levels(call.contract.reduce).between;
  auto const host = layout_.host_of(rank());
  if (crossing.contract.reduce == ReduceOp::premul_sum)
    crossing.scale = order_.weights()[static_cast<std::size_t>(host)];
  crossing.send = partials.data();
  auto announced = call;
  announced.sequence = inter_calls_;
  std::vector<int> members;
  for (auto const& ranks : layout_.hosts()) members.push_back(ranks[local]);
  try {
    Column column(between_(announced), members, host);
    p2p::Context context(column, {.chunk_bytes = slices.slice * element});
    p2p::RankOrder order(context, crossing, p2p::Shares(members.size(), {0, total * element}));
    try {
      for (std::size_t chunk = 0; chunk < slices.chunks(); ++chunk) {
        // The last chunk may have nothing for this rank.
        if (chunk < order.chunks()) order.combine(chunk, at(call.recv, slices(chunk, local).first * element));
        if (chunk + ahead < slices.chunks()) combine_slice(call, slices, chunk + ahead, partials.data());
        order.go_on(chunk);
        share_slice(call, slices, chunk);
      }
    } catch (Error const& error) {
      fail(error.code(), error.what());
      order.abandon();
      throw;
    }
  } catch (Error const& error) {
    intra_->fail(error.code(), error.what());
    throw;
  }
}

}  // namespace weft::hierarchical
