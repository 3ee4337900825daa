// all_gather over several hosts, block by block: each part crosses to every other host once, and the ranks of a host
// share the blocks that came while further ones cross.
#include <algorithm>

#include "collectives/hierarchical/crossing.hpp"
#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/partition.hpp"

namespace weft::hierarchical {

void HierarchicalBackend::bring_in(Crossing& crossing, void* recv, Ranges const& parts) {
  auto const mine = static_cast<std::size_t>(rank());
  PartArrays given;
  PartArrays got;
  for (int peer = 0; peer < layout_.size(); ++peer) {
    auto const index = static_cast<std::size_t>(peer);
    auto const& theirs = layout_.hosts()[static_cast<std::size_t>(layout_.host_of(peer))];
    auto const sends = !layout_.is_local(peer) && layout_.courier(rank(), theirs) == peer;
    auto const gets = !layout_.is_local(peer) && layout_.courier(peer, layout_.locals()) == rank();
    given.add(parts[mine].first, sends ? parts[mine].count : 0);
    got.add(parts[index].first, gets ? parts[index].count : 0);
  }
  crossing.begin(recv, given, recv, got);
}

void HierarchicalBackend::share(Call const& call, void* recv, Ranges const& parts) {
  std::size_t longest = 0;
  for (auto const& part : parts) longest = std::max(longest, part.count);
  // Without messages nothing is under way between steps, so smaller blocks would only mean more calls.
  auto const block = between_ ? std::max<std::size_t>(kSlice / size_of(call.contract.dtype), 1) : longest;
  auto const blocks = longest == 0 ? 0 : ceil_div(longest, block);
  Crossing crossing(*this, call);
  for (std::size_t k = 0; k < blocks + Crossing::kAhead; ++k) {
    if (k < blocks) bring_in(crossing, recv, block_of(parts, k, block));
    if (k < Crossing::kAhead) continue;
    crossing.wait();
    share_inside(call, recv, block_of(parts, k - Crossing::kAhead, block));
  }
}

// Each round shares as many parts as the host has ranks, each from the rank that has it.
void HierarchicalBackend::share_inside(Call const& call, void* recv, Ranges const& parts) {
  auto const element = size_of(call.contract.dtype);
  if (layout_.locals().size() == 1) return;
  for (auto const round : layout_.rounds()) {
    PartArrays shared;
    for (std::size_t i = 0; i < layout_.locals().size(); ++i) {
      auto const part = i < round.size() ? parts[static_cast<std::size_t>(round[i])] : Range{};
      shared.add(part.first, part.count);
    }
    if (shared.total() == 0) continue;
    auto const own = static_cast<std::size_t>(layout_.local_index(rank()));
    auto gather = inner(call, weft::Operation::all_gather_v, shared.total());
    gather.send = at(recv, shared.offsets[own] * element);
    gather.recv = recv;
    gather.recv_parts = shared.parts();
    run_intra(gather, &Backend::all_gather);
  }
}

void HierarchicalBackend::all_gather(Call const& call) {
  if (is_flat(call)) return run_flat(call, &Backend::all_gather);
  enter(call);
  auto const parts = parts_of(call, call.recv_parts);
  auto const mine = parts[static_cast<std::size_t>(rank())];
  auto* const own = at(call.recv, mine.first * size_of(call.contract.dtype));
  work_.copy(own, call.send, mine.count * size_of(call.contract.dtype));
  share(call, call.recv, parts);
}

}  // namespace weft::hierarchical
