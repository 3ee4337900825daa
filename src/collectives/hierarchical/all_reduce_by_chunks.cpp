// all_reduce over hosts of equally many ranks, chunk by chunk through both levels. Each rank of a host has a slice of
// the buffer; its counterparts on the other hosts have the same slice. For every chunk of its slice, a rank combines
// the contributions of its host, exchanges them with its counterparts, and shares the result with its host. Two hosts
// both combine the whole chunk: B bytes each way over a host's link, in one step. Of h hosts each combines one of h
// shares of the chunk and sends the others its results: 2B(h − 1)/h bytes, in two steps. All ranks of a host use its
// link at once, and while some chunks cross it, others are combined and shared inside.
#include <algorithm>

#include "collectives/hierarchical/column.hpp"
#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/p2p/rank_order.hpp"
#include "collectives/partition.hpp"

namespace weft::hierarchical {

bool HierarchicalBackend::goes_by_chunks(Call const& call) const noexcept {
  return call.contract.operation == weft::Operation::all_reduce && between_ && layout_.hosts().size() > 1 &&
         layout_.is_even() && combines_by_host(call) && !is_rounded(call);
}

/// How the elements are divided: the buffer into a slice for each local rank, a slice into chunks, and a chunk into
/// shares, one for each host (with two hosts, a single share). All of them begin at whole cache lines.
struct HierarchicalBackend::Slices {
  std::size_t count;  // elements of the buffer
  std::size_t locals;
  std::size_t shares;
  std::size_t chunk;  // elements of the longest chunk
  std::size_t element;

  [[nodiscard]] Range slice(std::size_t local) const noexcept {
    auto const slice = part_of(count, local, locals, element);
    return {slice.first, slice.count};
  }
  /// How many chunks the first slice has, which is the longest.
  [[nodiscard]] std::size_t chunks() const noexcept { return ceil_div(slice(0).count, chunk); }
  [[nodiscard]] Range part(std::size_t local, std::size_t k) const noexcept {
    auto const whole = slice(local);
    auto const part = weft::block_of(whole.count, k, chunk);
    return {whole.first + part.first, part.count};
  }
  [[nodiscard]] Range share(std::size_t local, std::size_t index, std::size_t k) const noexcept {
    auto const whole = part(local, k);
    auto const share = part_of(whole.count, index, shares, element);
    return {whole.first + share.first, share.count};
  }
  /// Where the host's combined contributions to chunk k are held; there are places for the chunks under way at once.
  [[nodiscard]] std::size_t place(std::size_t k) const noexcept { return k % p2p::RankOrder::kAhead * chunk; }
  /// Chunk k of every local rank's slice.
  [[nodiscard]] PartArrays parts(std::size_t k) const {
    PartArrays all;
    for (std::size_t local = 0; local < locals; ++local) {
      auto const range = part(local, k);
      all.add(range.first, range.count);
    }
    return all;
  }
};

/// Sends the results of this rank's share to its counterparts, and receives theirs.
class HierarchicalBackend::ResultExchange {
 public:
  ResultExchange(Transport& column, Slices const& slices, std::size_t local, void* result)
      : column_(column), slices_(slices), local_(local), result_(result) {}

  /// Begins to exchange chunk k, of which this rank's share is in place. Pre: the chunk before has been waited for.
  void begin(std::size_t k) {
    if (slices_.shares == 1) return;
    auto const mine = bytes_of(static_cast<std::size_t>(column_.rank()), k);
    for (int distance = 1; distance < column_.size(); ++distance) {
      auto const to = (column_.rank() + distance) % column_.size();
      auto const from = (column_.rank() - distance + column_.size()) % column_.size();
      if (!mine.empty()) under_way_.push_back(column_.start_send(to, mine));
      auto const theirs = bytes_of(static_cast<std::size_t>(from), k);
      if (!theirs.empty()) under_way_.push_back(column_.start_recv(from, theirs));
    }
  }
  void wait() {
    for (auto& each : under_way_) column_.wait(each);
    under_way_.clear();
  }
  /// Ends what is under way after a failure that the transport knows of.
  void abandon() noexcept try { wait(); } catch (Error const&) {  // that failure; nothing is under way any more
  }

 private:
  [[nodiscard]] std::span<std::byte> bytes_of(std::size_t share, std::size_t k) const noexcept {
    auto const range = slices_.share(local_, share, k);
    return {at(result_, range.first * slices_.element), range.count * slices_.element};
  }

  Transport& column_;
  Slices const& slices_;
  std::size_t local_;
  void* result_;
  std::vector<Transport::Request> under_way_;
};

void HierarchicalBackend::combine_chunk(Call const& call, Slices const& slices, std::size_t k, void* partials) {
  auto const parts = slices.parts(k);
  auto scatter = inner(call, weft::Operation::reduce_scatter_v, parts.total());
  scatter.contract.reduce = HostOrder::levels(call.contract.reduce).inside;
  scatter.scale = call.scale;
  scatter.send = call.send;
  scatter.recv = at(partials, slices.place(k) * slices.element);
  scatter.send_parts = parts.parts();
  run_intra(scatter, &Backend::reduce_scatter);
}

void HierarchicalBackend::share_chunk(Call const& call, Slices const& slices, std::size_t k) {
  auto const local = static_cast<std::size_t>(layout_.local_index(rank()));
  auto const parts = slices.parts(k);
  auto gather = inner(call, weft::Operation::all_gather_v, parts.total());
  gather.send = at(call.recv, slices.part(local, k).first * slices.element);
  gather.recv = call.recv;
  gather.recv_parts = parts.parts();
  run_intra(gather, &Backend::all_gather);
}

void HierarchicalBackend::all_reduce_by_chunks(Call const& call) {
  auto const local = static_cast<std::size_t>(layout_.local_index(rank()));
  auto const host = static_cast<std::size_t>(layout_.host_of(rank()));
  auto const hosts = layout_.hosts().size();
  auto const element = size_of(call.contract.dtype);
  auto const shares = hosts == 2 ? 1 : hosts;
  auto const share = std::clamp(kMostHeld / p2p::RankOrder::kAhead / hosts, kLeastBlock, kSlice);
  Slices const slices{call.contract.count, layout_.locals().size(), shares, shares * share / element, element};
  auto const chunks = slices.chunks();
  auto const ahead = std::min(p2p::RankOrder::kAhead, chunks);
  auto const held = std::max<std::size_t>(chunks == 1 ? slices.slice(local).count : ahead * slices.chunk, 1);
  auto const partials = workspace(held, call.contract.dtype);
  for (std::size_t k = 0; k < ahead; ++k) combine_chunk(call, slices, k, partials.data());

  auto crossing = inner(call, weft::Operation::all_reduce, slices.slice(local).count);
  crossing.contract.reduce = HostOrder::levels(call.contract.reduce).between;
  if (crossing.contract.reduce == ReduceOp::premul_sum) crossing.scale = order_.weights()[host];
  crossing.send = partials.data();
  auto const contribution = [&](int owner, std::size_t k) -> ByteRange {
    auto const range = slices.share(local, shares == 1 ? 0 : static_cast<std::size_t>(owner), k);
    return {(slices.place(k) + range.first - slices.part(local, k).first) * element, range.count * element};
  };
  std::vector<int> members;
  for (auto const& ranks : layout_.hosts()) members.push_back(ranks[local]);
  auto const announced = step_of(call, inter_calls_);
  try {
    Column column(between_(announced), members, static_cast<int>(host));
    p2p::Context context(column);
    p2p::RankOrder order(context, crossing, chunks, contribution);
    ResultExchange results(column, slices, local, call.recv);
    try {
      auto const own = shares == 1 ? 0 : host;
      for (std::size_t k = 0; k < chunks; ++k) {
        order.combine(k, at(call.recv, slices.share(local, own, k).first * element));
        results.wait();
        results.begin(k);
        if (k + ahead < chunks) combine_chunk(call, slices, k + ahead, partials.data());
        order.go_on(k);
        // With more hosts, the results of a chunk have the time of the next one to cross.
        if (shares == 1) share_chunk(call, slices, k);
        if (shares > 1 && k > 0) share_chunk(call, slices, k - 1);
      }
      results.wait();
      if (shares > 1) share_chunk(call, slices, chunks - 1);
    } catch (Error const& error) {
      fail(error.code(), error.what());
      order.abandon();
      results.abandon();
      throw;
    }
  } catch (Error const& error) {
    intra_->fail(error.code(), error.what());
    throw;
  }
}

}  // namespace weft::hierarchical
