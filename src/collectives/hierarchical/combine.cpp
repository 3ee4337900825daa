// Reductions in rank order: all contributions to a rank's part come to that rank, block by block, and it combines them.
#include <algorithm>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/partition.hpp"

namespace weft::hierarchical {

std::vector<double> HierarchicalBackend::share_scales(Call const& call) {
  std::vector<double> all(ranks(), 1);
  if (call.contract.reduce != ReduceOp::premul_sum) return all;
  auto tell = inner(call, weft::Operation::all_gather, 1);
  tell.contract.dtype = DataType::f64;
  tell.send = &call.scale;
  tell.recv = all.data();
  run_inter(tell, &Backend::all_gather);
  return all;
}

bool HierarchicalBackend::combines_by_host(Call const& call) const noexcept {
  if (layout_.hosts().size() == ranks()) return false;  // nobody to combine with
  auto const dtype = call.contract.dtype;
  auto const op = call.contract.reduce;
  return is_exact(dtype, op) || order_.applies_to(dtype, op);
}

void HierarchicalBackend::combine(Call const& call, void const* send, Ranges const& parts, void* result) {
  if (combines_by_host(call)) return combine_by_host(call, send, parts, result);
  combine_in_rank_order(call, send, parts, result);
}

void HierarchicalBackend::combine_in_rank_order(Call const& call, void const* send, Ranges const& parts, void* result) {
  auto const element = size_of(call.contract.dtype);
  auto const mine = static_cast<std::size_t>(rank());
  std::size_t longest = 0;
  for (auto const& part : parts) longest = std::max(longest, part.count);
  if (longest == 0) return;
  auto const unit = unit_of(call);
  auto const block = std::min(longest, block_bytes(ranks()) / unit * unit / element);
  auto const scales = share_scales(call);
  auto const gathered = workspace(block * ranks() * element, DataType::u8);
  for (std::size_t first = 0; first < longest; first += block) {
    auto const left = [&](Range const& part) { return part.count > first ? std::min(block, part.count - first) : 0; };
    Ranges gives(ranks());
    Ranges gets(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (r == mine) continue;  // this rank's own contribution is read where it lies
      gives[r] = {parts[r].first + first, left(parts[r])};
      gets[r] = {r * block, left(parts[mine])};
    }
    move(call, send, gives, gathered.data(), gets);
    std::vector<void const*> sources;
    for (std::size_t r = 0; r < ranks(); ++r) {
      sources.push_back(r == mine ? at(send, (parts[mine].first + first) * element)
                                  : at(static_cast<void const*>(gathered.data()), r * block * element));
    }
    work_.reduce(at(result, first * element), sources, left(parts[mine]) * element / call.grain(), call.contract.dtype,
                 {call.contract.reduce, scales.data(), call.user});
  }
}

}  // namespace weft::hierarchical
