#include "collectives/two_level/levels.hpp"

namespace weft::two_level {
namespace {

bool are_equal_and_side_by_side(PartsOfPlaces const& parts) {
  for (std::size_t place = 1; place < parts.counts.size(); ++place) {
    if (parts.counts[place] != parts.counts[0]) return false;
    if (parts.offsets[place] != parts.offsets[place - 1] + parts.counts[0]) return false;
  }
  return true;
}

}  // namespace

InnerCall inner(Call const& outer, Operation equal, Operation unequal, PartsOfPlaces const& parts, int place) {
  InnerCall made;
  auto& call = made.call;
  call.contract = {.count = parts.counts[static_cast<std::size_t>(place)],
                   .operation = equal,
                   .dtype = outer.contract.dtype,
                   .reduce = outer.contract.reduce};
  call.scale = outer.scale;
  call.device = outer.device;
  if (are_equal_and_side_by_side(parts)) {
    made.base = parts.offsets[0];
    return made;
  }
  call.contract.operation = unequal;
  call.own_bytes = call.bytes();
  call.send_parts = {parts.counts, parts.offsets};
  call.recv_parts = call.send_parts;
  call.own_parts();
  return made;
}

}  // namespace weft::two_level
