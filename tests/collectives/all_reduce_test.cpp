#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "collectives/reference.hpp"
#include "harness/ranks.hpp"

namespace weft::test {
namespace {

/// Tolerance of one rounding in the type (avg by a rank count that is no power of two).
double tolerance(DataType dtype, double value) {
  auto const magnitude = std::abs(value);
  switch (dtype) {
    case DataType::f16: return magnitude * 0x1p-10;
    case DataType::bf16: return magnitude * 0x1p-7;
    case DataType::f8e4m3: return magnitude * 0x1p-4;
    case DataType::f8e5m2: return magnitude * 0x1p-3;
    case DataType::c64:
    case DataType::f32: return magnitude * 0x1p-22;
    case DataType::c128:
    case DataType::f64: return magnitude * 0x1p-50;
    default: return 0;
  }
}

void expect_values(std::vector<double> const& wanted, std::vector<double> const& got, DataType dtype,
                   std::string const& what) {
  ASSERT_EQ(wanted.size(), got.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(wanted[i], got[i], tolerance(dtype, wanted[i])) << what << " element " << i;
  }
}

std::vector<std::vector<double>> all_contributions(int ranks, std::size_t count, DataType dtype, ReduceOp op,
                                                   std::uint64_t seed) {
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(make_values(count, dtype, op, rank, seed));
  return all;
}

/// One all_reduce against the serial double-precision reference.
void check_all_reduce(Communicator& world, std::size_t count, DataType dtype, ReduceOp op, bool symmetric,
                      bool in_place, std::uint64_t seed) {
  auto const contributions = all_contributions(world.size(), count, dtype, op, seed);
  auto send = symmetric ? world.allocate(count, dtype) : Buffer::host(count, dtype);
  auto recv = in_place ? Buffer{} : (symmetric ? world.allocate(count, dtype) : Buffer::host(count, dtype));
  store_values(contributions[static_cast<std::size_t>(world.rank())], send.view());
  auto const result = in_place ? send.view() : recv.view();
  world.all_reduce(send.view(), result, op);
  auto const what = std::string(to_string(dtype)) + " " + std::string(to_string(op)) + " × " + std::to_string(count) +
                    (symmetric ? " symmetric" : " private") + (in_place ? " in place" : "");
  expect_values(reduce_values(contributions, dtype, op), load_values(result), dtype, what);
}

struct Shape : testing::TestWithParam<int> {};

TEST_P(Shape, EveryTypeAndOperation) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    std::uint64_t seed = 1;
    for (auto const dtype : kAllTypes) {
      for (auto const op : kAllOps) {
        if (!supports(dtype, op)) continue;
        for (std::size_t const count : {1, 13, 1021}) {
          ++seed;
          check_all_reduce(world, count, dtype, op, (seed & 1U) != 0, (seed & 2U) != 0, seed);
        }
      }
    }
  });
}

TEST_P(Shape, EverySizeAndPath) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    for (std::size_t const count :
         {std::size_t{0}, std::size_t{1}, ranks - 1, ranks, ranks + 1, std::size_t{12}, std::size_t{13},
          std::size_t{4093}, std::size_t{40009}, std::size_t{150001}, std::size_t{400009}}) {
      for (bool const symmetric : {false, true}) {
        for (bool const in_place : {false, true}) {
          check_all_reduce(world, count, DataType::f32, ReduceOp::sum, symmetric, in_place, count);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Shape, testing::Values(1, 2, 3, 4, 7));

TEST(AllReduce, SixteenRanks) {
  run_thread_ranks(16, [](Communicator& world) {
    for (std::size_t const count : {1, 1021, 20011, 200003}) {
      check_all_reduce(world, count, DataType::bf16, ReduceOp::sum, false, true, count);
      check_all_reduce(world, count, DataType::f32, ReduceOp::avg, true, false, count);
    }
  });
}

TEST(AllReduce, SameBitsOnEveryRankPathAndSplit) {
  // Irrational contributions, so that any other order of additions shows in the bits.
  constexpr std::size_t kCount = 300007;
  run_thread_ranks(3, [](Communicator& world) {
    auto fill = [&](std::span<float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(std::sin(static_cast<double>(i + 1) * (world.rank() + 1)) * std::pow(10, i % 7));
      }
    };
    auto symmetric = world.allocate(kCount, DataType::f32);
    auto priv = Buffer::host(kCount, DataType::f32);
    auto pieces = Buffer::host(kCount, DataType::f32);
    fill(symmetric.as<float>());
    fill(priv.as<float>());
    fill(pieces.as<float>());
    world.all_reduce(symmetric.view(), symmetric.view(), ReduceOp::sum);
    world.all_reduce(priv.view(), priv.view(), ReduceOp::sum);
    for (std::size_t first = 0, length = 1; first < kCount; first += length, length = length * 3 + 1) {
      auto const piece = pieces.view().slice(first, std::min(length, kCount - first));
      world.all_reduce(piece, piece, ReduceOp::sum);
    }
    EXPECT_EQ(0, std::memcmp(symmetric.data(), priv.data(), kCount * sizeof(float)));
    EXPECT_EQ(0, std::memcmp(symmetric.data(), pieces.data(), kCount * sizeof(float)));
    auto everyone = Buffer::host(kCount * 3, DataType::f32);
    world.all_gather(symmetric.view(), everyone.view());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(0, std::memcmp(symmetric.data(), everyone.as<float>().data() + rank * kCount, kCount * sizeof(float)));
    }
  });
}

TEST(AllReduce, MixedSymmetricAndPrivateRanks) {
  run_thread_ranks(3, [](Communicator& world) {
    constexpr std::size_t kCount = 500009;
    auto symmetric = world.allocate(kCount, DataType::i32);
    auto priv = Buffer::host(kCount, DataType::i32);
    auto const view = world.rank() == 1 ? priv.view() : symmetric.view();
    auto const contributions = all_contributions(3, kCount, DataType::i32, ReduceOp::sum, 5);
    store_values(contributions[static_cast<std::size_t>(world.rank())], view);
    world.all_reduce(view, view, ReduceOp::sum);
    EXPECT_EQ(reduce_values(contributions, DataType::i32, ReduceOp::sum), load_values(view));
  });
}

TEST(AllReduce, LongRandomSequenceOfCalls) {
  // Rotating staging must never be overwritten while a peer reads it, whatever sizes follow one another.
  for (int const ranks : {2, 4}) {
    run_thread_ranks(ranks, [](Communicator& world) {
      std::mt19937_64 random(77);
      auto send = Buffer::host(400000, DataType::i32);
      auto recv = Buffer::host(400000, DataType::i32);
      for (int round = 0; round < 400; ++round) {
        auto const magnitude = std::size_t{1} << (random() % 19);
        auto const count = random() % magnitude + 1;
        auto in = send.as<std::int32_t>().first(count);
        for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<std::int32_t>(i) + round * (world.rank() + 1);
        world.all_reduce(send.view().slice(0, count), recv.view().slice(0, count), ReduceOp::sum);
        auto const n = world.size();
        auto const base = round * n * (n + 1) / 2;
        auto const out = recv.as<std::int32_t>();
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(base + n * static_cast<int>(i), out[i]) << round << " " << i;
      }
    });
  }
}

TEST(AllReduce, ForkedRanks) {
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    for (std::size_t const count : {1, 1000, 100003, 3000017}) {
      check_all_reduce(world, count, DataType::f32, ReduceOp::sum, false, true, count);
      check_all_reduce(world, count, DataType::f32, ReduceOp::avg, true, false, count);
    }
    return 0;
  });
  expect_all_succeeded(exits);
}

}  // namespace
}  // namespace weft::test
