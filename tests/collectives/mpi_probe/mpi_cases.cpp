#include "collectives/mpi_probe/mpi_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "collectives/cases/attempt.hpp"
#if WEFT_WITH_MPI
#include "collectives/cases/mpi_call.hpp"
#endif
#include "collectives/cases/serial.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kAreaBytes = std::size_t{512} << 10U;

void expect_equal(Communicator const& world, Case const& one, std::vector<std::byte> const& got,
                  std::vector<std::byte> const& wanted, char const* whose) {
  if (got == wanted) return;
  auto const differs = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end()).first - got.begin();
  throw std::runtime_error(fmt::format("rank {}: {}: byte {} of {} differs from {} result", world.rank(),
                                       one.describe(), differs, got.size(), whose));
}

#if WEFT_WITH_MPI
/// Bytes that do not depend on the order in which ranks are combined.
bool is_exact(Case const& one) {
  if (!reduces(one.kind) || one.op == ReduceOp::user) return true;
  if (is_integer(one.dtype) || one.dtype == DataType::boolean) return true;
  return one.values == Values::whole && one.op != ReduceOp::prod;
}

void compare_pieces(Communicator const& world, Attempt const& attempt, Case const& one,
                    std::vector<std::byte> const& theirs) {
  for (auto const& piece : attempt.layout().pieces) {
    auto const* const got = theirs.data() + piece.at * size_of(one.dtype);
    if (auto const difference = find_deviation(one, attempt.contributions(), piece, got)) {
      throw std::runtime_error(fmt::format("rank {}: {}: MPI's result: {}", world.rank(), one.describe(), *difference));
    }
  }
}
#endif

}  // namespace

void compare_communicators(Communicator& tested, Communicator& reference, int cases, std::uint64_t seed) {
  Arena tested_arena(tested, 2, kAreaBytes);
  Arena reference_arena(reference, 2, kAreaBytes);
  auto const stream = Stream::cpu();
  for (int number = 0; number < cases; ++number) {
    auto const one = make_case(seed, static_cast<std::uint64_t>(number), tested.size());
    auto const run = [&](Communicator& world, Arena& arena, CollectiveOptions const& options) {
      Attempt attempt(world, one, arena, 0);
      attempt.issue(options);
      attempt.finish();
      return attempt.result();
    };
    CollectiveOptions const on_stream{.stream = stream};
    bool const inline_here = (number + tested.rank()) % 3 != 0;
    auto const got = run(tested, tested_arena, inline_here ? CollectiveOptions{} : on_stream);
    auto const wanted = run(reference, reference_arena, {});
    // Which NaN comes out is not promised; the serial comparison has seen the rest.
    if (one.values != Values::special) expect_equal(tested, one, got, wanted, "shared memory's");
  }
}

#if WEFT_WITH_MPI
void compare_with_mpi(Communicator& tested, int cases, std::uint64_t seed) {
  Arena arena(tested, 2, kAreaBytes);
  std::uint64_t number = 0;
  for (int compared = 0; compared < cases; ++number) {
    auto const one = make_case(seed, number, tested.size());
    if (!mpi_knows(one)) continue;
    ++compared;
    Attempt attempt(tested, one, arena, 0);
    attempt.issue({});
    attempt.finish();
    auto const theirs = call_mpi(one, attempt.layout(), attempt.contributions(), tested.rank());
    compare_pieces(tested, attempt, one, theirs);
    if (!is_exact(one)) continue;
    std::vector<std::byte> pieces;
    for (auto const& piece : attempt.layout().pieces) {
      auto const* const begin = theirs.data() + piece.at * size_of(one.dtype);
      pieces.insert(pieces.end(), begin, begin + piece.count * size_of(one.dtype));
    }
    expect_equal(tested, one, attempt.result(), pieces, "MPI's");
  }
}
#endif

}  // namespace weft::test
