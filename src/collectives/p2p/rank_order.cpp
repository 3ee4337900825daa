#include <algorithm>
#include <array>

#include "collectives/p2p/steps.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::p2p {
namespace {

/// Every rank's factor for a premul_sum, by ⌈log2 n⌉ messages.
std::vector<double> share_scales(Context& context, double mine) {
  std::vector<double> scales{mine};
  auto const n = context.ranks();
  scales.resize(n);
  for (std::size_t have = 1; have < n; have *= 2) {
    auto const count = std::min(have, n - have);
    auto const distance = static_cast<int>(have);
    std::vector<double> sent(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<double> got(count);
    // Scales travel where nothing else does, too: they are this algorithm's own.
    auto* const to = context.carries_data() ? static_cast<void*>(got.data()) : context.workspace(0);
    auto const* const from = context.carries_data() ? static_cast<void const*>(sent.data()) : context.workspace(0);
    context.sendrecv(context.around(-distance), from, count * sizeof(double), context.around(distance), to,
                     count * sizeof(double));
    std::copy(got.begin(), got.end(), scales.begin() + static_cast<std::ptrdiff_t>(have));
  }
  std::rotate(scales.begin(), scales.end() - context.rank(), scales.end());  // rank 0's first
  return scales;
}

/// As kernels::reduce of all `contributions`, of which it takes so many at a time.
void combine_all(Context& context, Combiner const& combiner, Call const& call,
                 std::span<void const* const> contributions, std::span<double const> scales, std::size_t count,
                 void* result) {
  if (contributions.size() <= kernels::kMaxSources) {
    context.transport().reduced((contributions.size() - 1) * count * combiner.width());
    if (!context.carries_data()) return;
    return kernels::reduce({&result, 1}, contributions, count, call.contract.dtype,
                           {call.contract.reduce, scales.data(), call.user});
  }
  auto* const total = context.workspace(count * combiner.width());
  auto* const next = context.workspace(count * combiner.width());
  for (std::size_t r = 0; r < contributions.size(); ++r) {
    auto scaled = call;
    if (call.contract.reduce == ReduceOp::premul_sum) scaled.scale = scales[r];
    Combiner const loads(context, scaled);
    loads.load(r == 0 ? total : next, contributions[r], count);
    if (r > 0) combiner.combine(total, total, next, count);
  }
  combiner.finish(result, total, count);
}

}  // namespace

void reduce_in_rank_order(Context& context, Call const& call, Shares const& shares, void* result) {
  auto tuned = context.tuning();
  tuned.narrow_partials = false;
  Context inner(context.transport(), tuned);
  Combiner const combiner(inner, call);
  auto const rank = context.rank();
  auto const mine = shares[static_cast<std::size_t>(rank)];
  auto const scales = call.contract.reduce == ReduceOp::premul_sum ? share_scales(inner, call.scale)
                                                                   : std::vector<double>(context.ranks(), 1.0);
  auto* const gathered = inner.workspace(context.ranks() * mine.length);
  std::vector<void const*> contributions(context.ranks());
  std::vector<Request> requests;
  for (int distance = 1; distance < context.size(); ++distance) {
    auto const from = static_cast<std::size_t>(context.around(-distance));
    auto* const memory = at(gathered, from * mine.length);
    contributions[from] = memory;
    requests.push_back(inner.start_recv(context.around(-distance), memory, mine.length));
  }
  for (int distance = 1; distance < context.size(); ++distance) {
    auto const to = context.around(distance);
    auto const& share = shares[static_cast<std::size_t>(to)];
    requests.push_back(inner.start_send(to, at(call.send, share.offset), share.length));
  }
  contributions[static_cast<std::size_t>(rank)] = at(call.send, mine.offset);
  inner.wait(requests);
  if (mine.length > 0)
    combine_all(inner, combiner, call, contributions, scales, mine.length / combiner.grain(), result);
}

}  // namespace weft::p2p
