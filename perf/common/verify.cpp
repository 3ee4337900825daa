#include "common/verify.hpp"

#include <cstring>

#include "common/pattern.hpp"

namespace weft::perf {
namespace {

double wrong_here(Case const& what, BufferView found, Reference const& reference, Place place, Counts counts) {
  double wrong = 0;
  auto const size = size_of(found.dtype);
  auto const* const bytes = static_cast<std::byte const*>(found.data);
  for (std::size_t i = 0; i < found.count; ++i) {
    double const expected = what.expected(reference, place, i, counts);
    if (!reference.agrees(expected, decode(found.dtype, bytes + i * size))) ++wrong;
  }
  return wrong;
}

}  // namespace

double count_wrong(Board& board, Case const& what, Operands const& on, Counts counts, Place place, ReduceOp op,
                   int checks, std::function<void()> const& call) {
  constexpr int kRubbish = 0x5a;
  double wrong = 0;
  for (int check = 0; check < checks; ++check) {
    Reference const reference(on.recv.dtype, op, board.ranks(), static_cast<std::size_t>(check));
    if (on.recv.count > 0) std::memset(on.recv.data, kRubbish, on.recv.bytes());
    reference.fill(on.send, board.rank());
    board.barrier();
    call();
    wrong += wrong_here(what, on.recv, reference, place, counts);
  }
  return board.sum(wrong);
}

}  // namespace weft::perf
