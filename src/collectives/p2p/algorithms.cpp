#include "collectives/p2p/algorithms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>

#include "collectives/host_order.hpp"
#include "collectives/p2p/combiner.hpp"
#include "weft/error.hpp"

namespace weft::p2p {

#define WEFT_P2P_ALGORITHMS(apply)                                                                                   \
  apply(all_reduce_ring) apply(all_reduce_bidirectional_ring) apply(all_reduce_recursive_doubling)                   \
      apply(all_reduce_halving_doubling) apply(all_reduce_double_tree) apply(all_reduce_ordered)                     \
          apply(all_reduce_exchange) apply(reduce_scatter_ring) apply(reduce_scatter_recursive_halving)              \
              apply(reduce_scatter_pairwise) apply(reduce_scatter_ordered) apply(all_gather_ring)                    \
                  apply(all_gather_bruck) apply(all_gather_recursive_doubling) apply(broadcast_binomial)             \
                      apply(broadcast_chain) apply(broadcast_double_tree) apply(reduce_binomial) apply(reduce_chain) \
                          apply(reduce_ordered) apply(gather_binomial) apply(gather_linear) apply(scatter_binomial)  \
                              apply(scatter_linear) apply(all_to_all_pairwise) apply(all_to_all_bruck)               \
                                  apply(scan_doubling) apply(scan_chain) apply(barrier_dissemination)
#define WEFT_P2P_DECLARE(name)                   \
  void name(Context& context, Call const& call); \
  double name##_cost(CostQuestion const& question);
WEFT_P2P_ALGORITHMS(WEFT_P2P_DECLARE)
#undef WEFT_P2P_DECLARE
#undef WEFT_P2P_ALGORITHMS

namespace {

constexpr Algorithm kAlgorithms[] = {
    {.operation = Operation::all_reduce,
     .name = "ring",
     .run = all_reduce_ring,
     .cost_s = all_reduce_ring_cost,
     .keeps_order = false},
    {.operation = Operation::all_reduce,
     .name = "bidirectional_ring",
     .run = all_reduce_bidirectional_ring,
     .cost_s = all_reduce_bidirectional_ring_cost,
     .keeps_order = false},
    {.operation = Operation::all_reduce,
     .name = "recursive_doubling",
     .run = all_reduce_recursive_doubling,
     .cost_s = all_reduce_recursive_doubling_cost,
     .exact = Exact::powers_of_two},
    {.operation = Operation::all_reduce,
     .name = "halving_doubling",
     .run = all_reduce_halving_doubling,
     .cost_s = all_reduce_halving_doubling_cost,
     .exact = Exact::powers_of_two},
    {.operation = Operation::all_reduce,
     .name = "double_tree",
     .run = all_reduce_double_tree,
     .cost_s = all_reduce_double_tree_cost,
     .exact = Exact::never},
    {.operation = Operation::all_reduce,
     .name = "ordered",
     .run = all_reduce_ordered,
     .cost_s = all_reduce_ordered_cost,
     .exact = Exact::never,
     .bitwise = true},
    {.operation = Operation::all_reduce,
     .name = "exchange",
     .run = all_reduce_exchange,
     .cost_s = all_reduce_exchange_cost,
     .bitwise = true},
    {.operation = Operation::reduce_scatter,
     .name = "ring",
     .run = reduce_scatter_ring,
     .cost_s = reduce_scatter_ring_cost,
     .keeps_order = false},
    {.operation = Operation::reduce_scatter,
     .name = "recursive_halving",
     .run = reduce_scatter_recursive_halving,
     .cost_s = reduce_scatter_recursive_halving_cost,
     .exact = Exact::powers_of_two,
     .keeps_order = false},
    {.operation = Operation::reduce_scatter,
     .name = "pairwise",
     .run = reduce_scatter_pairwise,
     .cost_s = reduce_scatter_pairwise_cost,
     .keeps_order = false},
    {.operation = Operation::reduce_scatter,
     .name = "ordered",
     .run = reduce_scatter_ordered,
     .cost_s = reduce_scatter_ordered_cost,
     .bitwise = true},
    {.operation = Operation::all_gather, .name = "ring", .run = all_gather_ring, .cost_s = all_gather_ring_cost},
    {.operation = Operation::all_gather, .name = "bruck", .run = all_gather_bruck, .cost_s = all_gather_bruck_cost},
    {.operation = Operation::all_gather,
     .name = "recursive_doubling",
     .run = all_gather_recursive_doubling,
     .cost_s = all_gather_recursive_doubling_cost,
     .exact = Exact::powers_of_two,
     .unequal_parts = false},
    {.operation = Operation::broadcast,
     .name = "binomial",
     .run = broadcast_binomial,
     .cost_s = broadcast_binomial_cost,
     .exact = Exact::powers_of_two},
    {.operation = Operation::broadcast, .name = "chain", .run = broadcast_chain, .cost_s = broadcast_chain_cost},
    {.operation = Operation::broadcast,
     .name = "double_tree",
     .run = broadcast_double_tree,
     .cost_s = broadcast_double_tree_cost,
     .exact = Exact::never},
    {.operation = Operation::reduce,
     .name = "binomial",
     .run = reduce_binomial,
     .cost_s = reduce_binomial_cost,
     .exact = Exact::powers_of_two},
    {.operation = Operation::reduce,
     .name = "chain",
     .run = reduce_chain,
     .cost_s = reduce_chain_cost,
     .bitwise = true},
    {.operation = Operation::reduce,
     .name = "ordered",
     .run = reduce_ordered,
     .cost_s = reduce_ordered_cost,
     .bitwise = true},
    {.operation = Operation::gather,
     .name = "binomial",
     .run = gather_binomial,
     .cost_s = gather_binomial_cost,
     .exact = Exact::powers_of_two,
     .unequal_parts = false},
    {.operation = Operation::gather, .name = "linear", .run = gather_linear, .cost_s = gather_linear_cost},
    {.operation = Operation::scatter,
     .name = "binomial",
     .run = scatter_binomial,
     .cost_s = scatter_binomial_cost,
     .exact = Exact::powers_of_two,
     .unequal_parts = false},
    {.operation = Operation::scatter, .name = "linear", .run = scatter_linear, .cost_s = scatter_linear_cost},
    {.operation = Operation::all_to_all,
     .name = "pairwise",
     .run = all_to_all_pairwise,
     .cost_s = all_to_all_pairwise_cost},
    {.operation = Operation::all_to_all,
     .name = "bruck",
     .run = all_to_all_bruck,
     .cost_s = all_to_all_bruck_cost,
     .unequal_parts = false},
    {.operation = Operation::scan,
     .name = "doubling",
     .run = scan_doubling,
     .cost_s = scan_doubling_cost,
     .exact = Exact::powers_of_two},
    {.operation = Operation::scan, .name = "chain", .run = scan_chain, .cost_s = scan_chain_cost, .bitwise = true},
    {.operation = Operation::barrier,
     .name = "dissemination",
     .run = barrier_dissemination,
     .cost_s = barrier_dissemination_cost},
};

/// The operation that an algorithm for `operation` is listed under.
Operation listed(Operation operation) noexcept {
  switch (operation) {
    case Operation::exscan: return Operation::scan;
    case Operation::all_gather_v: return Operation::all_gather;
    case Operation::reduce_scatter_v: return Operation::reduce_scatter;
    case Operation::gather_v: return Operation::gather;
    case Operation::scatter_v: return Operation::scatter;
    case Operation::all_to_all_v: return Operation::all_to_all;
    default: return operation;
  }
}

/// A rank by itself: nothing is sent.
void run_alone(Context& context, Call const& call) {
  auto const grain = call.grain();
  auto const operation = listed(call.contract.operation);
  auto const sent = call.part(call.send_parts, 0);
  auto const received = call.part(call.recv_parts, 0);
  switch (operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::scan: {
      if (call.contract.operation == Operation::exscan) return;
      auto const count = (operation == Operation::reduce_scatter ? sent.length : call.bytes()) / grain;
      auto const first = operation == Operation::reduce_scatter ? sent.offset : 0;
      Combiner const combiner(context, call);
      auto* const total = context.workspace(count * combiner.width());
      combiner.load(total, at(call.send, first), count);
      return combiner.finish(call.recv, total, count);
    }
    case Operation::broadcast: return context.copy(call.recv, call.send, call.bytes());
    case Operation::all_gather:
    case Operation::gather: return context.copy(at(call.recv, received.offset), call.send, received.length);
    case Operation::scatter: return context.copy(call.recv, at(call.send, sent.offset), sent.length);
    case Operation::all_to_all:
      return context.copy(at(call.recv, received.offset), at(call.send, sent.offset), sent.length);
    default: return;
  }
}

}  // namespace

std::span<Algorithm const> algorithms() noexcept {
  return kAlgorithms;
}

bool can_run(Algorithm const& algorithm, Call const& call) noexcept {
  return listed(call.contract.operation) == algorithm.operation &&
         (algorithm.unequal_parts || !has_unequal_parts(call.contract.operation)) &&
         (algorithm.keeps_order || call.contract.reduce != ReduceOp::user);
}

Choice choose(Call const& call, CostQuestion network, bool same_bits) {
  auto const& contract = call.contract;
  network.bytes = static_cast<double>(call.bytes());
  if (has_parts_in_common(contract.operation)) network.bytes /= network.n();  // approximately
  // Every call comes by here, so nothing is allocated.
  struct Candidate {
    Algorithm const* algorithm;
    double takes;
  };
  std::array<Candidate, std::size(kAlgorithms)> candidates;
  auto const begin = candidates.begin();
  auto end = begin;
  for (auto const& algorithm : kAlgorithms) {
    if (can_run(algorithm, call)) *end++ = {&algorithm, 0};
  }
  auto const is_bitwise = [](Candidate const& each) { return each.algorithm->bitwise; };
  // Operations that combine nothing have no such algorithm.
  auto const combines = std::any_of(begin, end, is_bitwise);
  if (same_bits && combines && !is_exact(contract.dtype, contract.reduce)) {
    end = std::remove_if(begin, end, std::not_fn(is_bitwise));
  }
  if (network.ranks == 1) return {*begin->algorithm, 0};
  for (auto each = begin; each != end; ++each) each->takes = each->algorithm->cost_s(network);
  auto const by_time = [](Candidate const& a, Candidate const& b) { return a.takes < b.takes; };
  auto const least = std::min_element(begin, end, by_time)->takes;
  end = std::remove_if(begin, end, [&](Candidate const& each) { return each.takes > least * (1 + kAlike); });
  // Of those that count as equal, take the one that waits least often.
  auto without_bytes = network;
  without_bytes.bytes = 0;
  auto const waits = [&](Candidate const& each) { return each.algorithm->cost_s(without_bytes); };
  auto const best = std::min_element(begin, end, [&](auto const& a, auto const& b) {
    return waits(a) != waits(b) ? waits(a) < waits(b) : by_time(a, b);
  });
  return {*best->algorithm, best->takes};
}

Algorithm const* find_algorithm(Operation operation, std::string_view name) noexcept {
  auto const* const found = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [&](Algorithm const& each) {
    return each.operation == listed(operation) && each.name == name;
  });
  return found == std::end(kAlgorithms) ? nullptr : found;
}

std::string describe_exhaustion(int rank, Call const& call) {
  return fmt::format("rank {}: {}: no memory left for what is under way; free memory, or make calls smaller", rank,
                     describe(call));
}

void run(Algorithm const& algorithm, Transport& transport, Call const& call, Tuning const& tuning) {
  if (!can_run(algorithm, call)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} {} cannot run {}: {}", to_string(algorithm.operation), algorithm.name, describe(call),
                            listed(call.contract.operation) != algorithm.operation ? "it is another operation"
                            : !algorithm.keeps_order && call.contract.reduce == ReduceOp::user
                                ? "it does not combine in rank order, as callers' functions need"
                                : "it is for equal parts"));
  }
  Context context(transport, tuning);
  if (context.size() == 1) return run_alone(context, call);
  try {
    algorithm.run(context, call);
  } catch (std::bad_alloc const&) {  // the others wait for this rank, and messages may come to the context's memory
    transport.fail(ErrorCode::out_of_memory, describe_exhaustion(transport.rank(), call));
    throw;
  }
}

}  // namespace weft::p2p
