// all_reduce by two binary trees, each with half of the data in chunks of c bytes: data is combined on the way up to
// the roots, then sent down. Every rank is a leaf of one of the trees, so that all links are used both ways.
// On the wire, per rank: at most 2·B. Takes at most 2·h(α + c·(4β + 2γ)) + B·(2β + γ) with h = ⌊log2 n⌋ + 1 levels: few
// steps and, with many chunks, as much as the ring, for any number of ranks. (Operators that do not commute use one of
// the trees where n is odd.)
#include "collectives/p2p/double_tree.hpp"

namespace weft::p2p {

void all_reduce_double_tree(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  auto const count = call.bytes() / combiner.grain();
  auto const same = combiner.width() == combiner.grain();
  auto* const total = same ? static_cast<std::byte*>(call.recv) : context.workspace(count * combiner.width());
  combiner.load(total, call.send, count);
  auto const trees = double_tree(context.rank(), context.size(), combiner.is_ordered());
  auto const halves = halve(count, combiner.grain(), context.size(), combiner.is_ordered());
  reduce_up(context, combiner, trees, halves, total);
  for (std::size_t i = 0; i < 2; ++i) {
    auto const& half = halves[i];
    if (!trees[i].is_root()) continue;
    combiner.finish(at(call.recv, half.first * combiner.grain()), at(total, half.first * combiner.width()), half.count);
  }
  send_down(context, trees, halves, call.recv, combiner.grain());
}

double all_reduce_double_tree_cost(CostQuestion const& q) {
  auto moves_only = q;
  moves_only.gamma_s_per_byte = 0;
  return double_tree_cost(q, q.ranks) + double_tree_cost(moves_only, q.ranks);
}

}  // namespace weft::p2p
