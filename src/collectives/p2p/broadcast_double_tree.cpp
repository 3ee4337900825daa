// broadcast by two binary trees over the other ranks, each with half of the data in chunks of c bytes; the root feeds
// both. On the wire, per rank: at most B. Takes at most α + c·β + h·(α + 4c·β) + B·β, h = ⌊log2 (n − 1)⌋ + 1 levels:
// good for long messages and many ranks.
#include "collectives/p2p/double_tree.hpp"

namespace weft::p2p {
namespace {

/// The root's part: sends chunks to the roots of both trees in turn.
void feed(Context& context, Trees const& roots, Halves const& halves, void const* data) {
  std::vector<Request> sends;
  for (std::size_t k = 0;; ++k) {
    auto sent = false;
    for (std::size_t tree = 0; tree < 2; ++tree) {
      Chunks const chunks(halves[tree].count, 1, context.tuning());
      if (k >= chunks.size()) continue;
      sends.push_back(
          context.start_send(roots[tree].parent, at(data, halves[tree].first + chunks[k].first), chunks[k].count));
      sent = true;
    }
    if (!sent) break;
  }
  context.wait(sends);
}

}  // namespace

void broadcast_double_tree(Context& context, Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto const nodes = context.size() - 1;
  auto const rank_of = [&](int node) { return (node + root + 1) % context.size(); };
  auto const halves = halve(call.bytes(), 1, nodes, false);
  if (context.rank() == root) {
    context.copy(call.recv, call.send, call.bytes());
    Trees roots;  // only `parent` is used: the ranks of the trees' roots
    for (int node = 0; node < nodes; ++node) {
      auto const places = double_tree(node, nodes, false);
      for (std::size_t tree = 0; tree < 2; ++tree) {
        if (places[tree].is_root()) roots[tree].parent = rank_of(node);
      }
    }
    return feed(context, roots, halves, call.recv);
  }
  auto places = double_tree((context.rank() - root - 1 + context.size()) % context.size(), nodes, false);
  for (auto& place : places) {
    place.parent = place.is_root() ? root : rank_of(place.parent);
    if (place.before >= 0) place.before = rank_of(place.before);
    if (place.after >= 0) place.after = rank_of(place.after);
  }
  send_down(context, places, halves, call.recv, 1);
}

double broadcast_double_tree_cost(CostQuestion const& q) {
  auto const moves_only = CostQuestion{q.alpha_s, q.beta_s_per_byte, 0, q.ranks, q.bytes, q.chunk_bytes};
  return q.message(std::fmin(q.chunk_bytes, q.bytes / 2)) +
         (q.ranks > 1 ? double_tree_cost(moves_only, q.ranks - 1) : 0);
}

}  // namespace weft::p2p
