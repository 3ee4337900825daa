#include <utility>

#include "collectives/p2p/steps.hpp"

namespace weft::p2p {
namespace {

/// Share `index`, counted around the ring.
ByteRange const& around(Shares const& shares, int index) noexcept {
  auto const n = static_cast<int>(shares.size());
  return shares[static_cast<std::size_t>(((index % n) + n) % n)];
}

}  // namespace

// Share p starts at rank p + 1 and collects every rank's contribution on its way around to rank p.
void reduce_by_ring(Context& context, Combiner const& combiner, void const* send, Shares const& shares, void* result) {
  auto const rank = context.rank();
  auto const block = longest_of(shares) / combiner.grain() * combiner.width();
  auto* outgoing = context.workspace(block);
  auto* incoming = context.workspace(block);
  auto* const own = context.workspace(block);
  auto const contribution = [&](ByteRange const& share, void* scratch) {
    return combiner.loaded(at(send, share.offset), scratch, share.length / combiner.grain());
  };
  void const* sent = contribution(around(shares, rank - 1), own);
  for (int step = 1; step < context.size(); ++step) {
    auto const& gives = around(shares, rank - step);
    auto const& gets = around(shares, rank - step - 1);
    auto const count = gets.length / combiner.grain();
    context.sendrecv(context.around(1), sent, gives.length / combiner.grain() * combiner.width(), context.around(-1),
                     incoming, count * combiner.width());
    combiner.combine(incoming, incoming, contribution(gets, own), count);
    std::swap(incoming, outgoing);
    sent = outgoing;
  }
  combiner.finish(result, sent, around(shares, rank).length / combiner.grain());
}

void share_by_ring(Context& context, void* buffer, Shares const& shares) {
  auto const rank = context.rank();
  for (int step = 0; step + 1 < context.size(); ++step) {
    auto const& gives = around(shares, rank - step);
    auto const& gets = around(shares, rank - step - 1);
    context.sendrecv(context.around(1), at(buffer, gives.offset), gives.length, context.around(-1),
                     at(buffer, gets.offset), gets.length);
  }
}

// Share p comes to rank p from both sides: along ⌊n/2⌋ ranks before it and ⌊(n − 1)/2⌋ after it.
void reduce_by_two_rings(Context& context, Combiner const& combiner, void const* send, Shares const& shares,
                         void* result) {
  auto const rank = context.rank();
  int const up = context.size() / 2;  // steps of what goes to higher ranks
  int const down = (context.size() - 1) / 2;
  auto const width = combiner.width();
  auto const block = longest_of(shares) / combiner.grain() * width;
  auto* const own = context.workspace(block);
  std::byte* outgoing[2] = {context.workspace(block), context.workspace(block)};
  std::byte* incoming[2] = {context.workspace(block), context.workspace(block)};
  auto const contribution = [&](ByteRange const& share, void* scratch) {
    return combiner.loaded(at(send, share.offset), scratch, share.length / combiner.grain());
  };
  void const* sent[2] = {contribution(around(shares, rank + up), outgoing[0]),
                         contribution(around(shares, rank - down), outgoing[1])};
  for (int step = 0; step < up; ++step) {
    auto const both = step < down;
    auto const count_of = [&](ByteRange const& share) { return share.length / combiner.grain(); };
    auto const& up_gives = around(shares, rank + up - step);
    auto const& up_gets = around(shares, rank - 1 + up - step);
    auto const& down_gives = around(shares, rank - down + step);
    auto const& down_gets = around(shares, rank + 1 - down + step);
    Request requests[4] = {
        context.start_recv(context.around(-1), incoming[0], count_of(up_gets) * width),
        both ? context.start_recv(context.around(1), incoming[1], count_of(down_gets) * width) : Request::none,
        context.start_send(context.around(1), sent[0], count_of(up_gives) * width),
        both ? context.start_send(context.around(-1), sent[1], count_of(down_gives) * width) : Request::none};
    context.wait(requests);
    if (step + 1 < up) combiner.combine(incoming[0], incoming[0], contribution(up_gets, own), count_of(up_gets));
    if (step + 1 < down) combiner.combine(incoming[1], contribution(down_gets, own), incoming[1], count_of(down_gets));
    std::swap(incoming[0], outgoing[0]);
    sent[0] = outgoing[0];
    if (!both) continue;
    std::swap(incoming[1], outgoing[1]);
    sent[1] = outgoing[1];
  }
  auto const& mine = around(shares, rank);
  void const* const all[] = {sent[0], contribution(mine, own), sent[1]};
  combiner.combine(outgoing[0], {all, down > 0 ? 3U : 2U}, mine.length / combiner.grain());
  combiner.finish(result, outgoing[0], mine.length / combiner.grain());
}

void share_by_two_rings(Context& context, void* buffer, Shares const& shares) {
  auto const rank = context.rank();
  int const up = context.size() / 2;
  int const down = (context.size() - 1) / 2;
  auto const begin = [&](int share, int peer, bool sends) {
    auto const& range = around(shares, share);
    auto* const memory = at(buffer, range.offset);
    return sends ? context.start_send(peer, memory, range.length) : context.start_recv(peer, memory, range.length);
  };
  for (int step = 0; step < up; ++step) {
    auto const both = step < down;
    Request requests[4] = {begin(rank - 1 - step, context.around(-1), false),
                           both ? begin(rank + 1 + step, context.around(1), false) : Request::none,
                           begin(rank - step, context.around(1), true),
                           both ? begin(rank + step, context.around(-1), true) : Request::none};
    context.wait(requests);
  }
}

}  // namespace weft::p2p
