// Residuals of compressed gradients: a run that is resumed owes what the uninterrupted one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "bucketing/gradients.hpp"
#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/data_parallel.hpp"
#include "weft/training_checkpoint.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::test {
namespace {

std::vector<NamedParameter> const kParameters{{"matrix", {30, 17}}, {"none", {0}}, {"bias", {17}}};

std::size_t count_of(std::size_t tensor) {
  return tensor == 0 ? 510 : tensor == 1 ? 0 : 17;
}

/// A run with error feedback: replicas with a whole optimizer, or a sharded one.
class CompressedRun {
 public:
  CompressedRun(Communicator& world, bool sharded) : world_(world) {
    for (std::size_t i = 0; i < kParameters.size(); ++i) {
      memory_.push_back(Buffer::host(count_of(i), DataType::f32));
      for (std::size_t e = 0; e < count_of(i); ++e) floats(memory_.back().view())[e] = 0.1F * static_cast<float>(e % 7);
      views_.push_back(memory_.back().view());
    }
    BucketerOptions buckets{.rebuild = false, .stream = {}};
    buckets.hook = compressor.hook();
    if (sharded) {
      zero_.emplace(world, std::vector<ParameterGroup>{{views_, options_}}, ZeroOptions{.buckets = buckets});
    } else {
      ddp_.emplace(world, views_, buckets);
      optimizer_.emplace(views_, options_);
    }
  }

  void step(std::size_t number) {
    if (zero_) zero_->wait_parameters();
    for (std::size_t i = 0; i < kParameters.size(); ++i) {
      std::span<float> const to = floats(zero_ ? zero_->gradient(i) : ddp_->gradient(i));
      for (std::size_t e = 0; e < to.size(); ++e) to[e] = gradient_value(world_.rank(), number, i, e);
      zero_ ? zero_->mark_ready(i) : ddp_->mark_ready(i);
    }
    zero_ ? zero_->step() : ddp_->finish_and_update(*optimizer_);
  }
  void save_to(CheckpointSaver& saver) {
    zero_ ? save(saver, *zero_, kParameters, {}, &compressor)
          : save(saver, world_, *optimizer_, kParameters, {}, &compressor);
  }
  void load_from(Checkpoint const& checkpoint, bool with_residuals = true) {
    GradientCompressor* const residuals = with_residuals ? &compressor : nullptr;
    zero_ ? load(checkpoint, world_, *zero_, kParameters, residuals)
          : load(checkpoint, world_, *optimizer_, kParameters, residuals);
  }
  [[nodiscard]] std::vector<float> values() {
    std::vector<float> all;
    for (std::size_t i = 0; i < kParameters.size(); ++i) {
      if (zero_) {
        std::vector<float> const one = zero_->master(i);
        all.insert(all.end(), one.begin(), one.end());
      } else {
        all.insert(all.end(), floats(views_[i]).begin(), floats(views_[i]).end());
      }
    }
    return all;
  }

  GradientCompressor compressor{{.error_feedback = true}};

 private:
  Communicator& world_;
  SgdOptions options_{.lr = 0.5, .momentum = 0.9};
  std::vector<Buffer> memory_;
  std::vector<BufferView> views_;
  std::optional<DataParallel> ddp_;
  std::optional<Optimizer> optimizer_;
  std::optional<ZeroOptimizer> zero_;
};

/// Three steps, saved after two; what the third made of it, on any rank.
std::vector<float> train_and_save(int ranks, bool sharded, std::string const& folder) {
  std::vector<float> values;
  run_thread_ranks(ranks, [&](Communicator& world) {
    CompressedRun run(world, sharded);
    CheckpointSaver saver(world, folder);
    for (std::size_t step = 0; step < 2; ++step) run.step(step);
    run.save_to(saver);
    run.step(2);
    auto const mine = run.values();
    if (world.rank() == 0) values = mine;
  });
  return values;
}

TEST(ResidualCheckpoint, AResumedRunHasTheSameBits) {
  for (bool const saved_sharded : {false, true}) {
    TemporaryFolder const folder;
    std::vector<float> const expected = train_and_save(3, saved_sharded, folder.file("ck"));
    run_thread_ranks(3, [&](Communicator& world) {
      Checkpoint const checkpoint = Checkpoint::open(world, folder.file("ck"));
      for (bool const sharded : {false, true}) {
        CompressedRun resumed(world, sharded);
        resumed.load_from(checkpoint);
        resumed.step(2);
        EXPECT_EQ(resumed.values(), expected);
        CompressedRun without(world, sharded);
        without.load_from(checkpoint, false);
        without.step(2);
        EXPECT_NE(without.values(), expected) << "residuals make no difference here: the test shows nothing";
      }
    });
  }
}

TEST(ResidualCheckpoint, AnotherNumberOfRanksOwesTheSame) {
  TemporaryFolder const folder;
  std::vector<double> owed(count_of(0), 0);  // the mean over ranks
  run_thread_ranks(3, [&](Communicator& world) {
    CompressedRun run(world, true);
    for (std::size_t step = 0; step < 2; ++step) run.step(step);
    CheckpointSaver saver(world, folder.file("ck"));
    run.save_to(saver);
    std::vector<double> mine(run.compressor.residual(0).begin(), run.compressor.residual(0).end());
    std::span<double> const view(mine);
    world.all_reduce(view, view, ReduceOp::avg).wait();
    if (world.rank() == 0) owed = mine;
  });
  EXPECT_GT(*std::max_element(owed.begin(), owed.end()), 1e-4);
  run_thread_ranks(2, [&](Communicator& world) {
    CompressedRun resumed(world, false);
    resumed.load_from(Checkpoint::open(world, folder.file("ck")));
    std::span<float const> const residual = resumed.compressor.residual(0);
    ASSERT_EQ(residual.size(), owed.size());
    for (std::size_t e = 0; e < owed.size(); ++e) ASSERT_NEAR(residual[e], owed[e], 1e-8) << e;
    EXPECT_TRUE(resumed.compressor.residual(1).empty());
    resumed.step(2);
  });
}

TEST(ResidualCheckpoint, WithoutResidualsNothingIsOwed) {
  TemporaryFolder const folder;
  run_thread_ranks(2, [&](Communicator& world) {
    {
      CompressedRun fresh(world, false);  // no step, no residuals
      CheckpointSaver saver(world, folder.file("ck"));
      fresh.save_to(saver);
    }
    CompressedRun run(world, false);
    run.step(0);
    EXPECT_FALSE(run.compressor.residual(0).empty());
    run.load_from(Checkpoint::open(world, folder.file("ck")));
    EXPECT_TRUE(run.compressor.residual(0).empty());
  });
}

// Under find a rank may have had no gradient yet of what another has residuals of.
TEST(ResidualCheckpoint, ARankWithoutAGradientSavesItsRow) {
  TemporaryFolder const folder;
  std::vector<NamedParameter> const parameters{{"a", {5}}, {"b", {7}}};
  run_thread_ranks(2, [&](Communicator& world) {
    std::vector<float> a(5);
    std::vector<float> b(7);
    std::vector<BufferView> const views{std::span(a), std::span(b)};
    GradientCompressor compressor({.error_feedback = true});
    BucketerOptions options;
    options.unused = UnusedGradients::find;
    options.hook = compressor.hook();
    DataParallel ddp(world, views, options);
    Optimizer optimizer(views, SgdOptions{});
    for (std::size_t t = 0; t < (world.rank() == 0 ? 2U : 1U); ++t) {
      std::ranges::fill(floats(ddp.gradient(t)), 1.001F);
      ddp.mark_ready(t);
    }
    ddp.finish_and_update(optimizer);
    CheckpointSaver saver(world, folder.file("ck"));
    save(saver, world, optimizer, parameters, {}, &compressor);
    saver.wait();

    GradientCompressor resumed({.error_feedback = true});
    load(Checkpoint::open(world, folder.file("ck")), world, optimizer, parameters, &resumed);
    ASSERT_EQ(resumed.residual(1).size(), 7U);
    EXPECT_TRUE(std::ranges::equal(resumed.residual(1), compressor.residual(1)));
    EXPECT_EQ(resumed.residual(1)[0] == 0, world.rank() == 1);
  });
}

TEST(ResidualCheckpoint, AResidualOfAnotherSizeFailsTheStepOnAllRanks) {
  run_thread_ranks(2, [](Communicator& world) {
    CompressedRun run(world, false);
    run.compressor.set_residual(0, std::vector<float>(3, 0.0F));
    expect_error(ErrorCode::invalid_argument, {"3 residuals of tensor 0", "510"}, [&] { run.step(0); });
  });
}

}  // namespace
}  // namespace weft::test
