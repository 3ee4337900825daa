// all_to_all after Bruck: parts travel by the binary digits of their distance. In step i, those with digit i set go 2^i
// ranks on. Equal parts only. On the wire, per rank: Σ over i of (distances below n with digit i)·b, about
// n/2·log2 n·b, and everything is copied twice. Takes ⌈log2 n⌉·α and these bytes·β: good for short parts and many
// ranks.
#include "collectives/p2p/cost.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {
namespace {

/// How many numbers below `limit` have `digit`.
double count_with(unsigned digit, unsigned limit) noexcept {
  auto const whole = limit / (2 * digit) * digit;
  auto const rest = limit % (2 * digit);
  return whole + (rest > digit ? rest - digit : 0);
}

}  // namespace

void all_to_all_bruck(Context& context, Call const& call) {
  auto const part = call.bytes();
  auto const n = context.ranks();
  auto* const parts = context.workspace(n * part);  // by the distance that they still have to go, or have gone
  auto* const packed = context.workspace(n * part);
  auto* const arrived = context.workspace(n * part);
  auto const part_of = [&](int distance) { return static_cast<std::size_t>(context.around(distance)) * part; };
  for (std::size_t i = 0; i < n; ++i) {
    context.copy(at(parts, i * part), at(call.send, part_of(static_cast<int>(i))), part);
  }
  for (std::size_t digit = 1; digit < n; digit *= 2) {
    std::size_t count = 0;
    for (std::size_t i = digit; i < n; ++i) {
      if ((i & digit) != 0) context.copy(at(packed, count++ * part), at(parts, i * part), part);
    }
    auto const distance = static_cast<int>(digit);
    context.sendrecv(context.around(distance), packed, count * part, context.around(-distance), arrived, count * part);
    count = 0;
    for (std::size_t i = digit; i < n; ++i) {
      if ((i & digit) != 0) context.copy(at(parts, i * part), at(arrived, count++ * part), part);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    context.copy(at(call.recv, part_of(-static_cast<int>(i))), at(parts, i * part), part);
  }
}

double all_to_all_bruck_cost(CostQuestion const& q) {
  double parts = 0;
  for (unsigned digit = 1; digit < static_cast<unsigned>(q.ranks); digit *= 2) {
    parts += count_with(digit, static_cast<unsigned>(q.ranks));
  }
  return q.ceil_log() * q.alpha_s + parts * q.bytes * q.beta_s_per_byte;
}

}  // namespace weft::p2p
