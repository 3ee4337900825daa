#include "collectives/p2p/rank_order.hpp"

#include <algorithm>
#include <utility>

#include "collectives/p2p/steps.hpp"
#include "kernels/cpu/reduce.hpp"
#include "weft/error.hpp"

namespace weft::p2p {
namespace {

/// Tells every rank all factors of a premul_sum, with ⌈log2 n⌉ messages each.
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

Tuning with_wide_partials(Tuning tuning) noexcept {
  tuning.narrow_partials = false;
  return tuning;
}

/// Bytes of a chunk: whole grains.
std::size_t chunk_bytes(Context const& context, Call const& call) noexcept {
  return std::max<std::size_t>(1, context.tuning().chunk_bytes / call.grain()) * call.grain();
}

}  // namespace

RankOrder::RankOrder(Context& context, Call const& call, std::size_t chunks, Chunk chunk)
    : context_(context.transport(), with_wide_partials(context.tuning())),
      call_(call),
      combiner_(context_, call),
      scales_(call.contract.reduce == ReduceOp::premul_sum ? share_scales(context_, call.scale)
                                                           : std::vector<double>(context.ranks(), 1.0)),
      chunks_(chunks),
      chunk_(std::move(chunk)),
      longest_(chunk_(context.rank(), 0).length) {
  gathered_ = context_.workspace(std::min(kAhead, chunks_) * context_.ranks() * longest_);
  if (context_.ranks() > kernels::kFewSources) {
    for (auto& partial : partials_) partial = context_.workspace(longest_ / combiner_.grain() * combiner_.width());
  }
  for (std::size_t k = 0; k < std::min(kAhead, chunks_); ++k) ask(k);
}

RankOrder::RankOrder(Context& context, Call const& call, Shares const& shares)
    : RankOrder(context, call, ceil_div(longest_of(shares), chunk_bytes(context, call)),
                [shares, length = chunk_bytes(context, call)](int owner, std::size_t k) -> ByteRange {
                  auto const& share = shares[static_cast<std::size_t>(owner)];
                  auto const piece = block_of(share.length, k, length);
                  return {share.offset + piece.first, piece.count};
                }) {}

std::byte* RankOrder::slot(int from, std::size_t k) const noexcept {
  if (!context_.carries_data()) return gathered_;
  return at(gathered_, (k % kAhead * context_.ranks() + static_cast<std::size_t>(from)) * longest_);
}

void RankOrder::ask(std::size_t k) {
  auto& requests = requests_[k % kAhead];
  requests.clear();
  for (int distance = 1; distance < context_.size(); ++distance) {
    auto const to = context_.around(distance);
    auto const given = chunk(to, k);
    requests.push_back(context_.start_send(to, at(call_.send, given.offset), given.length));
  }
  auto const mine = chunk(context_.rank(), k);
  for (int distance = 1; distance < context_.size(); ++distance) {
    auto const from = context_.around(-distance);
    requests.push_back(context_.start_recv(from, slot(from, k), mine.length));
  }
}

void RankOrder::combine(std::size_t k, void* result) {
  context_.wait(requests_[k % kAhead]);
  auto const mine = chunk(context_.rank(), k);
  if (mine.length == 0) return;
  std::vector<void const*> contributions;
  for (int from = 0; from < context_.size(); ++from) {
    contributions.push_back(from == context_.rank() ? at(call_.send, mine.offset) : slot(from, k));
  }
  reduce(contributions, mine.length / call_.grain(), result);
}

void RankOrder::abandon() noexcept {
  try {
    for (auto& requests : requests_) context_.wait(requests);
  } catch (Error const&) {  // the one that it has been told; nothing is under way any more
  }
}

void RankOrder::reduce(std::vector<void const*> const& contributions, std::size_t count, void* result) {
  if (partials_[0] == nullptr) {
    context_.transport().reduced((contributions.size() - 1) * count * combiner_.width());
    if (!context_.carries_data()) return;
    return kernels::reduce({&result, 1}, contributions, count, call_.contract.dtype,
                           {call_.contract.reduce, scales_.data(), call_.user});
  }
  auto* const total = partials_[0];
  for (std::size_t r = 0; r < contributions.size(); ++r) {
    auto scaled = call_;
    if (call_.contract.reduce == ReduceOp::premul_sum) scaled.scale = scales_[r];
    Combiner const loads(context_, scaled);
    loads.load(r == 0 ? total : partials_[1], contributions[r], count);
    if (r > 0) combiner_.combine(total, total, partials_[1], count);
  }
  combiner_.finish(result, total, count);
}

void reduce_in_rank_order(Context& context, Call const& call, Shares const& shares, void* result) {
  RankOrder order(context, call, shares);
  auto const begin = order.chunk(context.rank(), 0).offset;
  for (std::size_t k = 0; k < order.chunks(); ++k) {
    order.combine(k, at(result, order.chunk(context.rank(), k).offset - begin));
    order.go_on(k);
  }
}

double reducing_in_rank_order_cost(CostQuestion const& q, double part) {
  auto const moved = (q.n() - 1) * part;
  auto const slower = std::max(q.beta_s_per_byte, q.gamma_s_per_byte);
  auto const faster = std::min(q.beta_s_per_byte, q.gamma_s_per_byte);
  auto const messages = (q.n() - 1) * q.chunks(part);
  return q.alpha_s + moved * slower + moved / q.chunks(part) * faster + messages * q.message_s;
}

}  // namespace weft::p2p
