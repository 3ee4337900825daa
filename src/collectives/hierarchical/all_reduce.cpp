// all_reduce, reduce and reduce_scatter over several hosts: each rank combines a part of the elements, see combine.cpp
// and combine_by_host.cpp. Then all ranks share the results, or the root collects them, or they stay where they are.
#include <algorithm>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/hierarchical/rounded.hpp"
#include "collectives/partition.hpp"

namespace weft::hierarchical {

char const* HierarchicalBackend::way_of(Call const& call) const noexcept {
  if (is_rounded(call)) {
    return wire_ == WireFormat::bf16 ? "combined inside hosts first, bf16 between them"
                                     : "combined inside hosts first, fp8 between them";
  }
  if (goes_by_chunks(call)) return "chunk by chunk through both levels";
  return combines_by_host(call) ? "combined inside hosts first" : "combined in rank order";
}

void HierarchicalBackend::all_reduce(Call const& call) {
  if (is_flat(call)) return run_flat(call, &Backend::all_reduce);
  enter(call, way_of(call));
  if (goes_by_chunks(call)) return all_reduce_by_chunks(call);
  auto const parts = even_split(call);
  if (is_rounded(call)) return Rounded(*this, call, parts).all_reduce(call.send, static_cast<float*>(call.recv));
  auto const mine = parts[static_cast<std::size_t>(rank())];
  combine(call, call.send, parts, at(call.recv, mine.first * size_of(call.contract.dtype)));
  share(call, call.recv, parts);
}

void HierarchicalBackend::reduce(Call const& call) {
  if (is_flat(call)) return run_flat(call, &Backend::reduce);
  enter(call, combines_by_host(call) ? "combined inside hosts first" : "combined in rank order");
  auto const parts = even_split(call);
  auto const mine = parts[static_cast<std::size_t>(rank())];
  auto const own = workspace(std::max<std::size_t>(mine.count, 1), call.contract.dtype);
  combine(call, call.send, parts, own.data());
  Ranges gives(ranks());
  gives[call.contract.root] = {0, mine.count};
  move(call, own.data(), gives, call.recv, call.is_root(rank()) ? parts : Ranges(ranks()));
}

void HierarchicalBackend::reduce_scatter(Call const& call) {
  if (is_flat(call)) return run_flat(call, &Backend::reduce_scatter);
  enter(call, way_of(call));
  auto const parts = parts_of(call, call.send_parts);
  if (is_rounded(call)) return Rounded(*this, call, parts).reduce(call.send, static_cast<float*>(call.recv));
  combine(call, call.send, parts, call.recv);
}

}  // namespace weft::hierarchical
