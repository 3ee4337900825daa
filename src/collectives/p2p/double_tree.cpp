#include "collectives/p2p/double_tree.hpp"

#include <bit>

#include "collectives/p2p/intake.hpp"

namespace weft::p2p {
namespace {

/// One rank's part in one tree, chunk by chunk.
class Climb {
 public:
  Climb(Context& context, Combiner const& combiner, TreePlace const& place, Piece const& half, std::byte* total)
      : context_(context),
        combiner_(combiner),
        place_(place),
        chunks_(half.count, combiner.width(), context.tuning()),
        total_(at(total, half.first * combiner.width())),
        before_(context, place.before, chunks_, combiner.width()),
        after_(context, place.after, chunks_, combiner.width()) {}

  [[nodiscard]] std::size_t size() const noexcept { return chunks_.size(); }

  void step(std::size_t k) {
    if (k >= chunks_.size()) return;
    auto* const own = at(total_, chunks_[k].first * combiner_.width());
    std::array<void const*, 3> sources{};
    std::size_t count = 0;
    if (place_.before >= 0) sources[count++] = before_.next();
    sources[count++] = own;
    if (place_.after >= 0) sources[count++] = after_.next();
    if (count > 1) combiner_.combine(own, {sources.data(), count}, chunks_[k].count);
    if (!place_.is_root()) {
      sends_.push_back(context_.start_send(place_.parent, own, chunks_[k].count * combiner_.width()));
    }
  }

  void finish() { context_.wait(sends_); }

 private:
  Context& context_;
  Combiner const& combiner_;
  TreePlace place_;
  Chunks chunks_;
  std::byte* total_;
  Intake before_;
  Intake after_;
  std::vector<Request> sends_;
};

/// The tree to begin with: the one that this rank is a leaf of, because what a leaf sends waits for nobody.
std::size_t leaf_first(Trees const& trees) noexcept {
  return trees[0].is_leaf() ? 0 : 1;
}

/// By how many chunks a rank works ahead in the tree that it is a leaf of. In the other tree every level waits for the
/// one below, and these delays must not pass on to the first.
std::size_t lead_of(Context const& context) noexcept {
  return 4U * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(context.size())));
}

}  // namespace

Halves halve(std::size_t count, std::size_t grain, int nodes, bool keep_order) {
  if (nodes == 1 || (nodes % 2 == 1 && keep_order)) return {Piece{0, count}, Piece{count, 0}};
  auto const pieces = split(count, 2, grain);
  return {pieces[0], pieces[1]};
}

void reduce_up(Context& context, Combiner const& combiner, Trees const& trees, Halves const& halves, std::byte* total) {
  Climb climbs[2] = {{context, combiner, trees[0], halves[0], total}, {context, combiner, trees[1], halves[1], total}};
  auto const leaf = leaf_first(trees);
  auto const steps = std::max(climbs[0].size(), climbs[1].size());
  auto const lead = trees[leaf].is_leaf() ? lead_of(context) : 0;
  for (std::size_t k = 0; k < lead; ++k) climbs[leaf].step(k);
  for (std::size_t k = 0; k < steps; ++k) {
    climbs[leaf].step(k + lead);
    climbs[1 - leaf].step(k);
  }
  for (auto& climb : climbs) climb.finish();
}

void send_down(Context& context, Trees const& trees, Halves const& halves, void* buffer, std::size_t grain) {
  std::array<std::vector<Request>, 2> receives;
  std::vector<Request> sends;
  auto const chunks_of = [&](std::size_t tree) { return Chunks(halves[tree].count, grain, context.tuning()); };
  auto const chunk_at = [&](std::size_t tree, std::size_t k) {
    return at(buffer, (halves[tree].first + chunks_of(tree)[k].first) * grain);
  };
  for (std::size_t tree = 0; tree < 2; ++tree) {
    for (std::size_t k = 0; k < chunks_of(tree).size() && !trees[tree].is_root(); ++k) {
      receives[tree].push_back(
          context.start_recv(trees[tree].parent, chunk_at(tree, k), chunks_of(tree)[k].count * grain));
    }
  }
  for (std::size_t k = 0; k < std::max(chunks_of(0).size(), chunks_of(1).size()); ++k) {
    for (std::size_t tree = 0; tree < 2; ++tree) {
      if (trees[tree].is_leaf() || k >= chunks_of(tree).size()) continue;
      if (!trees[tree].is_root()) context.wait(receives[tree][k]);
      for (int const child : {trees[tree].before, trees[tree].after}) {
        if (child >= 0) sends.push_back(context.start_send(child, chunk_at(tree, k), chunks_of(tree)[k].count * grain));
      }
    }
  }
  for (auto& each : receives) context.wait(each);
  context.wait(sends);
}

double double_tree_cost(CostQuestion const& q, int nodes) {
  auto const levels = std::bit_width(static_cast<unsigned>(nodes));
  auto const chunk = std::fmin(q.chunk_bytes, q.bytes / 2);
  return levels * (q.message(4 * chunk) + q.combining(2 * chunk)) + q.bytes * (q.beta_s_per_byte + q.gamma_s_per_byte);
}

}  // namespace weft::p2p
