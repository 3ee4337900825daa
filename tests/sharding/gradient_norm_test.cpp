#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/error.hpp"
#include "weft/sharded_gradients.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::test {
namespace {

TEST(ShardedGradientNormTest, EveryRankGetsThatOfTheWhole) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<float> shard(4, static_cast<float>(world.rank() + 1));
    std::vector<BufferView> const shards{BufferView(std::span(shard))};
    EXPECT_DOUBLE_EQ(gradient_norm(world, shards).norm, std::sqrt(4.0 * (1 + 4 + 9)));
    EXPECT_DOUBLE_EQ(gradient_norm(world, shards, NormType::inf, 2).norm, 6);
    auto const norm = clip_grad_norm(world, shards, 1);
    EXPECT_TRUE(norm.finite);
    EXPECT_NEAR(shard[0], (world.rank() + 1) / norm.norm, 1e-6) << "by the norm of the whole, not of the shard";
  });
}

TEST(ShardedGradientNormTest, TakesAZeroOptimizersShards) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<std::vector<float>> tensors{
        std::vector<float>(1000), {}, std::vector<float>(7), std::vector<float>(333)};
    ParameterGroup group{{}, SgdOptions{.lr = 1}};
    for (auto& tensor : tensors) group.parameters.emplace_back(std::span(tensor));
    ZeroOptimizer zero(world, {group});
    expect_error(ErrorCode::invalid_argument, {"ZeroOptimizer::gradient_shards", "rebuild = false"},
                 [&] { (void)zero.gradient_shards(); });
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      float* const gradient = static_cast<float*>(zero.gradient(i).data);
      std::fill_n(gradient, tensors[i].size(), static_cast<float>(3 * i + 3) * static_cast<float>(world.rank()));
      zero.mark_ready(i);
    }
    zero.reduce();  // averages 3, 9 and 12
    double const expected = std::sqrt(1000 * 9.0 + 7 * 81.0 + 333 * 144.0);
    std::vector<BufferView> const shards = zero.gradient_shards();
    std::size_t elements = 0;
    for (BufferView const& shard : shards) {
      EXPECT_GT(shard.count, 0U);
      elements += shard.count;
    }
    std::vector<std::uint64_t> all(3);
    std::uint64_t const mine = elements;
    world.all_gather(std::span<std::uint64_t const>(&mine, 1), std::span(all)).wait();
    EXPECT_EQ(all[0] + all[1] + all[2], 1340U);
    EXPECT_NEAR(clip_grad_norm(world, shards, 1).norm, expected, 1e-4);
    zero.step();
    zero.wait_parameters();
    EXPECT_NEAR(static_cast<float const*>(zero.parameter(3).data)[332], -12 / expected, 1e-6);
  });
}

TEST(ShardedGradientNormTest, HoldsWhereSquaresExceedF32) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> shard(50, 1e30F);
    auto const norm = clip_grad_norm(world, std::vector<BufferView>{BufferView(std::span(shard))}, 1);
    EXPECT_TRUE(norm.finite);
    EXPECT_NEAR(norm.norm / 1e31, 1, 1e-5);
    for (float const value : shard) EXPECT_NEAR(value, 0.1F, 1e-6);
  });
}

TEST(ShardedGradientNormTest, OneRanksOverflowIsEverybodys) {
  for (auto const type : {NormType::l2, NormType::inf}) {
    run_thread_ranks(2, [type](Communicator& world) {
      std::vector<float> shard(100, 1);
      if (world.rank() == 1) shard[99] = std::numeric_limits<float>::infinity();
      std::vector<BufferView> const shards{BufferView(std::span(shard))};
      EXPECT_FALSE(gradient_norm(world, shards, type).finite);
      EXPECT_FALSE(clip_grad_norm(world, shards, 0.5, type).finite);
      EXPECT_EQ(shard[0], 1) << "nobody scales what is to be skipped";
    });
  }
}

TEST(ShardedGradientNormTest, ARankWithoutShardsTakesPart) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> shard{3, 4};
    std::vector<BufferView> shards;
    if (world.rank() == 0) shards.push_back(BufferView(std::span(shard)));
    EXPECT_DOUBLE_EQ(gradient_norm(world, shards).norm, 5);
    EXPECT_THROW(clip_grad_norm(world, shards, -1), Error);
  });
}

}  // namespace
}  // namespace weft::test
