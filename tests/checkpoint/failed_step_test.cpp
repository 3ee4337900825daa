// A step that failed leaves shards of different steps, or of ranks that went different ways. No checkpoint is made of
// it.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/fully_sharded.hpp"
#include "weft/training_checkpoint.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kElements = 1000;
std::vector<NamedParameter> const kParameters{{"weight", {kElements}}};

/// A step whose gradients are all ones.
void train(ZeroOptimizer& zero) {
  zero.wait_parameters();
  std::fill_n(static_cast<float*>(zero.gradient(0).data), kElements, 1.0F);
  zero.mark_ready(0);
  zero.step();
}

void train(FullySharded& sharded) {
  sharded.before_forward(0);
  sharded.after_forward(0);
  sharded.before_backward(0);
  std::fill_n(static_cast<float*>(sharded.gradient(0).data), kElements, 1.0F);
  sharded.after_backward(0);
  sharded.step();
}

/// What `call` throws.
ErrorCode code_of(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::system;
}

/// Two good steps and a save; then rank 1 comes with another learning rate.
template <typename Strategy>
void differ_and_save(Communicator& world, Strategy& strategy, std::string const& folder) {
  CheckpointSaver saver(world, folder);
  train(strategy);
  train(strategy);
  save(saver, strategy, kParameters);
  saver.wait();
  if (world.rank() == 1) strategy.set_lr(0.4);
  try {
    train(strategy);  // where nothing is judged the others learn of it later
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  }
  EXPECT_EQ(code_of([&] { save(saver, strategy, kParameters); }), ErrorCode::mismatch);
}

class FailedStep : public testing::TestWithParam<bool> {};

TEST_P(FailedStep, OfAZeroOptimizerIsNotSaved) {
  TemporaryFolder const folder;
  run_thread_ranks(2, [&](Communicator& world) {
    std::vector<float> weight(kElements, 1);
    ZeroOptions options;
    if (GetParam()) options.gradients.max_norm = 1;
    ZeroOptimizer zero(world, {ParameterGroup{{std::span(weight)}, SgdOptions{.lr = 0.1}}}, options);
    differ_and_save(world, zero, folder.file("run"));
  });
  EXPECT_EQ(Checkpoint::open(folder.file("run")).info().step, 2);
}

TEST_P(FailedStep, OfAFullyShardedIsNotSaved) {
  TemporaryFolder const folder;
  run_thread_ranks(2, [&](Communicator& world) {
    std::vector<float> weight(kElements, 1);
    FullyShardedOptions options;
    if (GetParam()) options.gradients.max_norm = 1;
    FullySharded sharded(world, {{"all", {ParameterGroup{{std::span(weight)}, SgdOptions{.lr = 0.1}}}}}, options);
    differ_and_save(world, sharded, folder.file("run"));
  });
  EXPECT_EQ(Checkpoint::open(folder.file("run")).info().step, 2);
}

INSTANTIATE_TEST_SUITE_P(, FailedStep, testing::Bool(),
                         [](auto const& one) { return one.param ? "judged" : "not_judged"; });

}  // namespace
}  // namespace weft::test
