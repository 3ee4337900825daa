// broadcast over several hosts: every rank gets a part from the root, then all ranks share their parts.
#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"

namespace weft::hierarchical {

void HierarchicalBackend::broadcast(Call const& call) {
  if (is_flat(call)) return run_flat(call, &Backend::broadcast);
  enter(call);
  // Sent this way, the buffer leaves the root's host about once, not once per host.
  auto const parts = even_split(call);
  auto const mine = static_cast<std::size_t>(rank());
  auto const root = static_cast<std::size_t>(call.contract.root);
  auto const is_root = call.is_root(rank());
  Ranges gets(ranks());
  if (!is_root) gets[root] = parts[mine];
  auto gives = is_root ? parts : Ranges(ranks());
  gives[mine] = {};
  move(call, call.send, gives, call.recv, gets);
  share(call, call.recv, parts);
}

}  // namespace weft::hierarchical
