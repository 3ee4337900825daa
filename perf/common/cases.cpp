#include "common/cases.hpp"

#include <algorithm>

namespace weft::perf {
namespace {

constexpr Op kOps[] = {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::broadcast, Op::reduce,
                       Op::all_to_all, Op::gather,     Op::scatter,        Op::send_recv, Op::hypercube};

}  // namespace

std::size_t Case::room(Counts counts) const {
  return std::max(counts.send, counts.recv);
}

std::size_t Case::algorithm_elements(Counts counts, int) const {
  return std::max(counts.send, counts.recv);
}

std::unique_ptr<Case> make_case(Op op) {
  switch (op) {
    case Op::all_reduce: return all_reduce_case();
    case Op::all_gather: return all_gather_case();
    case Op::reduce_scatter: return reduce_scatter_case();
    case Op::broadcast: return broadcast_case();
    case Op::reduce: return reduce_case();
    case Op::all_to_all: return all_to_all_case();
    case Op::gather: return gather_case();
    case Op::scatter: return scatter_case();
    case Op::send_recv: return send_recv_case();
    case Op::hypercube: return hypercube_case();
  }
  return nullptr;
}

std::unique_ptr<Case> make_case(std::string const& name) {
  for (auto const op : kOps) {
    auto candidate = make_case(op);
    if (candidate->name() == name) return candidate;
  }
  return nullptr;
}

}  // namespace weft::perf
