// Reductions by hosts first, block by block: the ranks of a host combine their contributions, then partial results of
// each part come together at its rank, one from every host.
#include <algorithm>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/shm/partition.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::hierarchical {

using shm::at;

void HierarchicalBackend::combine_inside(Call const& call, void const* send, Ranges const& parts, std::size_t first,
                                         std::size_t block, void* partials) {
  auto const element = size_of(call.contract.dtype);
  auto const rounds = layout_.rounds();
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    PartArrays shared;
    for (std::size_t i = 0; i < layout_.locals().size(); ++i) {
      auto const part = i < rounds[r].size() ? parts[static_cast<std::size_t>(rounds[r][i])] : Range{};
      shared.add(part.first + first, part.count > first ? std::min(block, part.count - first) : 0);
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

void HierarchicalBackend::exchange_partials(Call const& call, Ranges const& parts, std::size_t first, std::size_t block,
                                            void const* partials, void* arrived) {
  auto const left = [&](int owner) {
    auto const& part = parts[static_cast<std::size_t>(owner)];
    return part.count > first ? std::min(block, part.count - first) : 0;
  };
  PartArrays given;
  PartArrays got;
  for (int peer = 0; peer < layout_.size(); ++peer) {
    auto const& theirs = layout_.hosts()[static_cast<std::size_t>(layout_.host_of(peer))];
    auto const gives = !layout_.is_local(peer) && layout_.courier(peer, layout_.locals()) == rank();
    auto const gets = !layout_.is_local(peer) && layout_.courier(rank(), theirs) == peer;
    given.add(gives ? layout_.round_of(peer) * block : 0, gives ? left(peer) : 0);
    got.add(static_cast<std::size_t>(layout_.host_of(peer)) * block, gets ? left(rank()) : 0);
  }
  exchange(call, partials, given, arrived, got, &HierarchicalBackend::run_inter);
}

void HierarchicalBackend::combine_by_host(Call const& call, void const* send, Ranges const& parts, void* result) {
  auto const element = size_of(call.contract.dtype);
  auto const hosts = layout_.hosts().size();
  std::size_t longest = 0;
  for (auto const& part : parts) longest = std::max(longest, part.count);
  if (longest == 0) return;
  // Equal on all ranks, whose hosts may need different numbers of rounds.
  auto const blocks = layout_.most_rounds() + hosts;
  auto const block = std::min(longest, std::max(kLeastBlock, kWorkspace / blocks / 64 * 64) / element);
  auto const partials = workspace(block * layout_.most_rounds(), call.contract.dtype);
  auto const arrived = workspace(block * hosts, call.contract.dtype);
  auto const& mine = parts[static_cast<std::size_t>(rank())];
  for (std::size_t first = 0; first < longest; first += block) {
    combine_inside(call, send, parts, first, block, partials.data());
    exchange_partials(call, parts, first, block, partials.data(), arrived.data());
    auto const count = mine.count > first ? std::min(block, mine.count - first) : 0;
    std::vector<void const*> sources;
    for (std::size_t host = 0; host < hosts; ++host) {
      auto const own = host == static_cast<std::size_t>(layout_.host_of(rank()));
      sources.push_back(own ? at(partials.data(), layout_.round_of(rank()) * block * element)
                            : at(arrived.data(), host * block * element));
    }
    void* const destination = at(result, first * element);
    kernels::reduce({&destination, 1}, sources, count, call.contract.dtype,
                    {HostOrder::levels(call.contract.reduce).between, order_.weights().data(), {}});
  }
}

}  // namespace weft::hierarchical
