#include "simulation/sim_backend.hpp"

#include "collectives/merged_call.hpp"

namespace weft::sim {

// Where the parts are known only to some ranks, they cannot agree on whether the call is small.
Backend& SimBackend::of(Call const& call) const noexcept {
  auto const operation = call.contract.operation;
  auto const has_private_parts = has_unequal_parts(operation) && !has_parts_in_common(operation);
  return sizes_ && (call.bytes() > kCarriedBytes || has_private_parts) ? *sizes_ : *data_;
}

void SimBackend::merged(MergedCall const& calls) {
  run_flat(*this, calls, rank_, size_, flat_, [&](Call const& flat) { calls.run_plain(*this, flat); });
}

}  // namespace weft::sim
