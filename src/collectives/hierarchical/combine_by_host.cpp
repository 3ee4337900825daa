// Reductions by hosts first, block by block: the ranks of a host combine their contributions; then the partial results
// of each part, one from every host, come together at the part's rank while hosts combine the next blocks.
#include <algorithm>

#include "collectives/hierarchical/crossing.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/partition.hpp"

namespace weft::hierarchical {

void HierarchicalBackend::combine_inside(Call const& call, void const* send, Ranges const& parts, std::size_t block,
                                         void* partials) {
  auto const element = size_of(call.contract.dtype);
  auto const rounds = layout_.rounds();
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    PartArrays shared;
    for (std::size_t i = 0; i < layout_.locals().size(); ++i) {
      auto const part = i < rounds[r].size() ? parts[static_cast<std::size_t>(rounds[r][i])] : Range{};
      shared.add(part.first, part.count);
    }
    if (shared.total() == 0) continue;
    auto scatter = inner(call, weft::Operation::reduce_scatter_v, shared.total());
    scatter.contract.reduce = HostOrder::levels(call.contract.reduce).inside;
    scatter.scale = call.scale;
    scatter.send = send;
    scatter.recv = at(partials, r * block * element);
    scatter.send_parts = shared.parts();
    run_intra(scatter, &Backend::reduce_scatter);
  }
}

void HierarchicalBackend::exchange_partials(Crossing& crossing, Ranges const& parts, std::size_t block,
                                            void const* partials, void* arrived) {
  auto const count = [&](int owner) { return parts[static_cast<std::size_t>(owner)].count; };
  PartArrays given;
  PartArrays got;
  for (int peer = 0; peer < layout_.size(); ++peer) {
    auto const& theirs = layout_.hosts()[static_cast<std::size_t>(layout_.host_of(peer))];
    auto const gives = !layout_.is_local(peer) && layout_.courier(peer, layout_.locals()) == rank();
    auto const gets = !layout_.is_local(peer) && layout_.courier(rank(), theirs) == peer;
    given.add(gives ? layout_.round_of(peer) * block : 0, gives ? count(peer) : 0);
    got.add(static_cast<std::size_t>(layout_.host_of(peer)) * block, gets ? count(rank()) : 0);
  }
  crossing.begin(partials, given, arrived, got);
}

void HierarchicalBackend::combine_by_host(Call const& call, void const* send, Ranges const& parts, void* result) {
  auto const element = size_of(call.contract.dtype);
  auto const hosts = layout_.hosts().size();
  std::size_t longest = 0;
  for (auto const& part : parts) longest = std::max(longest, part.count);
  if (longest == 0) return;
  // All ranks must cut equal blocks, so they use the most rounds that a host needs.
  auto const rounds = layout_.most_rounds();
  auto const places = between_ ? Crossing::kAhead + 1 : 1;
  auto const most = block_bytes(places * (rounds + hosts));
  auto const block = std::min(longest, (between_ ? std::min(most, kSlice) : most) / element);
  auto const blocks = ceil_div(longest, block);
  auto const ahead = std::min(places, blocks) - 1;
  auto const partials = workspace(block * rounds * (ahead + 1), call.contract.dtype);
  auto const arrived = workspace(block * hosts * (ahead + 1), call.contract.dtype);
  auto const partials_of = [&](std::size_t k) {
    return at(partials.data(), k % (ahead + 1) * block * rounds * element);
  };
  auto const arrived_of = [&](std::size_t k) { return at(arrived.data(), k % (ahead + 1) * block * hosts * element); };
  auto const mine = static_cast<std::size_t>(rank());

  Crossing crossing(*this, call);
  for (std::size_t k = 0; k < blocks + ahead; ++k) {
    if (k < blocks) {
      auto const these = block_of(parts, k, block);
      combine_inside(call, send, these, block, partials_of(k));
      exchange_partials(crossing, these, block, partials_of(k), arrived_of(k));
    }
    if (k < ahead) continue;
    crossing.wait();
    auto const done = k - ahead;
    std::vector<void const*> sources;
    for (std::size_t host = 0; host < hosts; ++host) {
      auto const own = host == static_cast<std::size_t>(layout_.host_of(rank()));
      sources.push_back(own ? at(partials_of(done), layout_.round_of(rank()) * block * element)
                            : at(arrived_of(done), host * block * element));
    }
    work_.reduce(at(result, done * block * element), sources, block_of(parts, done, block)[mine].count,
                 call.contract.dtype, {HostOrder::levels(call.contract.reduce).between, order_.weights().data(), {}});
  }
}

}  // namespace weft::hierarchical
