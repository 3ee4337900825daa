#include "collectives/cases/nearly.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/reference.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 7, 1009, 2500, 20011, 70001, 300007};

struct Reducing {
  enum Operation { all_reduce, reduce, reduce_scatter } operation = all_reduce;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;  ///< premul_sum: each rank has a scale of its own
  std::size_t count = 0;
  int root = 0;
  std::uint64_t seed = 0;
};

Reducing draw(std::mt19937_64& engine, int ranks) {
  auto const below = [&](std::size_t limit) { return engine() % limit; };
  Reducing one;
  one.operation = static_cast<Reducing::Operation>(below(3));
  do {
    one.dtype = kAllTypes[below(std::size(kAllTypes))];
    one.op = kAllOps[below(std::size(kAllOps))];
  } while (!supports(one.dtype, one.op));
  if (one.op == ReduceOp::sum && !is_integer(one.dtype) && supports(one.dtype, ReduceOp::premul_sum) && below(2) == 0)
    one.op = ReduceOp::premul_sum;
  one.count = kCounts[below(std::size(kCounts))];
  one.root = static_cast<int>(below(static_cast<std::size_t>(ranks)));
  one.seed = engine();
  return one;
}

/// Largest difference that rounding partial results may make to values of up to 8, from up to 9 ranks.
double tolerance(DataType dtype) {
  switch (dtype) {
    case DataType::f64:
    case DataType::c128: return 1e-13;
    case DataType::f32:
    case DataType::c64: return 1e-4;
    case DataType::f16: return 0.1;
    case DataType::bf16: return 0.8;
    default: return 0;
  }
}

Buffer contribution(Reducing const& one, std::size_t count, int rank) {
  auto buffer = Buffer::host(count, one.dtype);
  std::mt19937_64 engine(one.seed * 31 + static_cast<std::uint64_t>(rank));
  if (is_integer(one.dtype) || one.dtype == DataType::boolean) {
    auto* const bytes = static_cast<unsigned char*>(buffer.data());
    for (std::size_t i = 0; i < buffer.view().bytes(); ++i) bytes[i] = static_cast<unsigned char>(engine() >> 40U);
    return buffer;
  }
  std::vector<double> values(count);  // near 1, so that products neither vanish nor overflow
  for (auto& value : values) value = std::uniform_real_distribution<double>(0.8, 1.25)(engine);
  store_values(values, buffer.view());
  return buffer;
}

Buffer run(Communicator& world, Reducing const& one) {
  auto const scatters = one.operation == Reducing::reduce_scatter;
  auto const send =
      contribution(one, one.count * (scatters ? static_cast<std::size_t>(world.size()) : 1), world.rank());
  auto recv = Buffer::host(one.count, one.dtype);
  if (recv.view().bytes() > 0) std::memset(recv.data(), 0, recv.view().bytes());
  auto const how = one.op == ReduceOp::premul_sum ? Reduction::premul_sum(0.3 * (world.rank() + 1)) : Reduction(one.op);
  if (one.operation == Reducing::all_reduce) world.all_reduce(send.view(), recv.view(), how);
  if (one.operation == Reducing::reduce) world.reduce(send.view(), recv.view(), how, one.root);
  if (scatters) world.reduce_scatter(send.view(), recv.view(), how);
  return recv;
}

/// The same reduction in calls of other sizes: of a few elements and of many.
Buffer run_in_pieces(Communicator& world, Reducing const& one) {
  auto const send = contribution(one, one.count, world.rank());
  auto recv = Buffer::host(one.count, one.dtype);
  auto const how = one.op == ReduceOp::premul_sum ? Reduction::premul_sum(0.3 * (world.rank() + 1)) : Reduction(one.op);
  std::mt19937_64 engine(one.seed + 1);
  for (std::size_t first = 0; first < one.count;) {
    auto const count = std::min<std::size_t>(one.count - first, engine() % 2 == 0 ? 1 + engine() % 300 : one.count / 3);
    world.all_reduce(send.view().slice(first, count), recv.view().slice(first, count), how);
    first += count;
  }
  return recv;
}

bool same_bits(Buffer const& a, Buffer const& b) {
  return a.view().bytes() == 0 || std::memcmp(a.data(), b.data(), a.view().bytes()) == 0;
}

/// Every rank has rank 0's bits.
bool same_everywhere(Communicator& world, Buffer const& mine) {
  auto first = Buffer::host(mine.view().count, mine.view().dtype);
  if (mine.view().bytes() > 0) std::memcpy(first.data(), mine.data(), mine.view().bytes());
  world.broadcast(first.view(), 0);
  return same_bits(first, mine);
}

}  // namespace

void compare_nearly(Communicator& tested, Communicator& reference, int cases, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  for (int i = 0; i < cases; ++i) {
    auto const one = draw(engine, tested.size());
    auto const fail = [&](char const* what) {
      constexpr char const* kNames[] = {"all_reduce", "reduce", "reduce_scatter"};
      throw std::runtime_error(fmt::format("rank {}: seed {}, case {} {}: {} of {} × {}, {}, root {}", tested.rank(),
                                           seed, i, what, kNames[one.operation], one.count, to_string(one.dtype),
                                           to_string(one.op), one.root));
    };
    auto const got = run(tested, one);
    auto const again = run(tested, one);
    auto const wanted = run(reference, one);
    if (!same_bits(got, again)) fail("differs from run to run");
    if (one.operation == Reducing::all_reduce && !same_everywhere(tested, got)) fail("differs between ranks");
    if (one.operation == Reducing::all_reduce && one.count < 30'000 && !same_bits(got, run_in_pieces(tested, one)))
      fail("depends on the sizes of calls");
    auto const most = tolerance(one.dtype);
    if (most == 0 && !same_bits(got, wanted)) fail("differs where order does not matter");
    if (most == 0) continue;
    auto const a = load_values(got.view());
    auto const b = load_values(wanted.view());
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (!(std::abs(a[k] - b[k]) <= most)) fail("differs by more than rounding");
    }
  }
}

}  // namespace weft::test
