#include "weft/fully_sharded.hpp"

#include <gtest/gtest.h>

#include "sharding/fully_sharded_training.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

TEST(FullySharded, EqualsReplicasWithAWholeOptimizer) {
  Training const training{
      .specs = model(15, 60), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1, .momentum = 0.9}};
  for (int const ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const expected = train_replicated(world, training);
      for (std::size_t const prefetch : {0U, 1U, 3U}) {
        for (bool const reshard : {true, false}) {
          FullyShardedOptions options;
          options.prefetch = prefetch;
          options.reshard_after_forward = reshard;
          options.poison = true;
          EXPECT_EQ(train_fully_sharded(world, training, options), expected)
              << ranks << " ranks, prefetch " << prefetch << ", reshard " << reshard;
        }
      }
    });
  }
}

}  // namespace
}  // namespace weft::test
