#include "weft/training_checkpoint.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/save_files.hpp"
#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/convert.hpp"
#include "weft/data_parallel.hpp"
#include "weft/fully_sharded.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::test {
namespace {

std::vector<NamedParameter> const kParameters{
    {"embedding", {40, 11}}, {"scale", {}}, {"matrix", {130, 17}}, {"bias", {17}}, {"head", {3, 2, 5}}};

std::size_t count_of(NamedParameter const& parameter) {
  std::size_t count = 1;
  for (std::size_t const extent : parameter.shape) count *= extent;
  return count;
}

constexpr std::int64_t kDiverges = 1000;  ///< the step whose gradient of matrix[1234] is no number

/// A gradient that no rank has to itself, of values that 16 bits hold, whose mean over any ranks is itself.
float gradient_at(std::int64_t step, std::size_t tensor, std::size_t element) {
  if (step == kDiverges && tensor == 2 && element == 1234) return std::numeric_limits<float>::quiet_NaN();
  auto const mixed = static_cast<double>((element * 7 + tensor * 13 + static_cast<std::size_t>(step) * 5) % 29);
  return static_cast<float>((mixed - 14) / 16);
}

void write_gradient(BufferView const& to, std::int64_t step, std::size_t tensor) {
  std::vector<float> values(to.count);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = gradient_at(step, tensor, i);
  convert(std::span<float const>(values), to);
}

/// All values and states, whole.
using State = std::vector<std::vector<float>>;

/// One of the strategies, on one rank, before its first step.
class Trainee {
 public:
  explicit Trainee(DataType dtype) {
    for (NamedParameter const& parameter : kParameters) {
      start_.push_back(Buffer::host(count_of(parameter), dtype));
      std::vector<float> values(start_.back().count());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(i + start_.size());
      convert(std::span<float const>(values), start_.back().view());
    }
  }
  virtual ~Trainee() = default;
  Trainee(Trainee const&) = delete;
  Trainee& operator=(Trainee const&) = delete;

  virtual void step(std::int64_t step) = 0;
  virtual void save_to(CheckpointSaver& saver, std::span<NamedParameter const> parameters = kParameters) = 0;
  virtual void load_from(Checkpoint const& checkpoint, std::span<NamedParameter const> parameters = kParameters) = 0;
  virtual State state() = 0;
  virtual std::int64_t steps() = 0;

 protected:
  [[nodiscard]] std::vector<BufferView> views() const {
    std::vector<BufferView> all;
    for (Buffer const& buffer : start_) all.push_back(buffer.view());
    return all;
  }
  AdamWOptions options_{.lr = 0.01};
  std::vector<Buffer> start_;
};

class ReplicatedTrainee final : public Trainee {
 public:
  ReplicatedTrainee(Communicator& world, DataType dtype)
      : Trainee(dtype), world_(world), optimizer_(views(), options_), ddp_(world, views()) {}
  void step(std::int64_t step) override {
    std::vector<BufferView> gradients;
    for (std::size_t i = 0; i < kParameters.size(); ++i) write_gradient(ddp_.gradient(i), step, i), ddp_.mark_ready(i);
    ddp_.finish();
    for (std::size_t i = 0; i < kParameters.size(); ++i) gradients.push_back(ddp_.gradient(i));
    optimizer_.step(gradients);
  }
  void save_to(CheckpointSaver& saver, std::span<NamedParameter const> parameters) override {
    save(saver, world_, optimizer_, parameters);
  }
  void load_from(Checkpoint const& checkpoint, std::span<NamedParameter const> parameters) override {
    load(checkpoint, world_, optimizer_, parameters);
  }
  State state() override {
    State all;
    for (std::size_t i = 0; i < kParameters.size(); ++i) {
      auto const* const values = static_cast<float const*>(optimizer_.master(i).data);
      all.emplace_back(values, values + optimizer_.master(i).count);
      for (std::size_t which = 0; which < 2; ++which) all.push_back(optimizer_.state(i, which));
    }
    return all;
  }
  std::int64_t steps() override { return optimizer_.step_count(); }

 private:
  Communicator& world_;
  Optimizer optimizer_;
  DataParallel ddp_;
};

template <typename Sharded>
State state_of(Sharded& sharded) {
  State all;
  for (std::size_t i = 0; i < kParameters.size(); ++i) {
    all.push_back(sharded.master(i));
    for (std::size_t which = 0; which < 2; ++which) all.push_back(sharded.state(i, which));
  }
  return all;
}

class ZeroTrainee final : public Trainee {
 public:
  ZeroTrainee(Communicator& world, DataType dtype, bool resumed)
      : Trainee(dtype), world_(world), zero_(world, {{views(), options_}}, zero_options(resumed)) {}
  void step(std::int64_t step) override {
    zero_.wait_parameters();
    for (std::size_t i = 0; i < kParameters.size(); ++i)
      write_gradient(zero_.gradient(i), step, i), zero_.mark_ready(i);
    zero_.step();
  }
  void save_to(CheckpointSaver& saver, std::span<NamedParameter const> parameters) override {
    save(saver, zero_, parameters);
  }
  void load_from(Checkpoint const& checkpoint, std::span<NamedParameter const> parameters) override {
    load(checkpoint, world_, zero_, parameters);
  }
  State state() override { return state_of(zero_); }
  std::int64_t steps() override { return zero_.step_count(); }

 private:
  static ZeroOptions zero_options(bool resumed) {
    ZeroOptions options;
    options.buckets.limits = {2000, 2000, 1};
    options.buckets.rebuild = !resumed;
    return options;
  }
  Communicator& world_;
  ZeroOptimizer zero_;
};

class FullyShardedTrainee final : public Trainee {
 public:
  FullyShardedTrainee(Communicator& world, DataType dtype, int shard_size)
      : Trainee(dtype), world_(world), model_(world, units(), {.shard_size = shard_size}) {}
  void step(std::int64_t step) override {
    for (std::size_t unit = 0; unit < 2; ++unit) model_.before_forward(unit), model_.after_forward(unit);
    for (std::size_t unit = 2; unit-- > 0;) {
      model_.before_backward(unit);
      for (std::size_t i = 0; i < kParameters.size(); ++i) {
        if (model_.unit_of(i) == unit) write_gradient(model_.gradient(i), step, i);
      }
      model_.after_backward(unit);
    }
    model_.step();
  }
  void save_to(CheckpointSaver& saver, std::span<NamedParameter const> parameters) override {
    save(saver, model_, parameters);
  }
  void load_from(Checkpoint const& checkpoint, std::span<NamedParameter const> parameters) override {
    load(checkpoint, world_, model_, parameters);
  }
  State state() override { return state_of(model_); }
  std::int64_t steps() override { return model_.step_count(); }

 private:
  std::vector<ShardedUnit> units() {
    auto const all = views();
    return {{"first", {{{all[0], all[1]}, options_}}}, {"second", {{{all[2], all[3], all[4]}, options_}}}};
  }
  Communicator& world_;
  FullySharded model_;
};

struct Trained {
  char const* strategy;
  int ranks;
};
std::ostream& operator<<(std::ostream& out, Trained const& run) {
  return out << run.strategy << run.ranks;
}

std::unique_ptr<Trainee> make(Communicator& world, std::string const& strategy, DataType dtype, bool resumed) {
  if (strategy == "replicated") return std::make_unique<ReplicatedTrainee>(world, dtype);
  if (strategy == "zero") return std::make_unique<ZeroTrainee>(world, dtype, resumed);
  return std::make_unique<FullyShardedTrainee>(world, dtype, strategy == "hybrid" ? 2 : 0);
}

class TrainingCheckpointTest : public testing::TestWithParam<std::tuple<Trained, DataType>> {};

TEST_P(TrainingCheckpointTest, ContinuesUnderAnyStrategyAtAnyNumberOfRanks) {
  auto const [saved, dtype] = GetParam();
  TemporaryFolder const folder;
  State expected;  // at the save, and after two more steps
  State expected_later;
  run_thread_ranks(saved.ranks, [&, saved = saved, dtype = dtype](Communicator& world) {
    auto const trainee = make(world, saved.strategy, dtype, false);
    for (std::int64_t step = 0; step < 3; ++step) trainee->step(step);
    CheckpointSaver saver(world, folder.file("ck"));
    trainee->save_to(saver);
    State const here = trainee->state();
    for (std::int64_t step = 3; step < 5; ++step) trainee->step(step);  // while it is written
    saver.wait();
    State const later = trainee->state();
    if (world.rank() == 0) expected = here, expected_later = later;
  });
  for (Trained const& resumed : {Trained{"replicated", 3}, Trained{"zero", 2}, Trained{"sharded", 3},
                                 Trained{"hybrid", 4}, Trained{"zero", 1}}) {
    run_thread_ranks(resumed.ranks, [&, dtype = dtype](Communicator& world) {
      auto const trainee = make(world, resumed.strategy, dtype, true);
      Checkpoint const checkpoint = Checkpoint::open(world, folder.file("ck"));
      EXPECT_EQ(std::get<AdamWOptions>(checkpoint.info().optimizer.at(0)).lr, 0.01);
      trainee->load_from(checkpoint);
      EXPECT_EQ(trainee->steps(), 3);
      EXPECT_EQ(trainee->state(), expected) << resumed;
      for (std::int64_t step = 3; step < 5; ++step) trainee->step(step);
      EXPECT_EQ(trainee->state(), expected_later) << resumed;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Saved, TrainingCheckpointTest,
                         testing::Combine(testing::Values(Trained{"replicated", 4}, Trained{"zero", 3},
                                                          Trained{"sharded", 2}, Trained{"hybrid", 4}),
                                          testing::Values(DataType::f32, DataType::bf16)),
                         [](auto const& setup) {
                           return std::string(std::get<0>(setup.param).strategy) +
                                  std::string(to_string(std::get<1>(setup.param)));
                         });

TEST(TrainingCheckpointErrorsTest, AnotherModelIsRefusedOnAllRanks) {
  TemporaryFolder const folder;
  run_thread_ranks(2, [&](Communicator& world) {
    ZeroTrainee trainee(world, DataType::f32, true);
    {
      CheckpointSaver saver(world, folder.file("ck"));
      trainee.save_to(saver, kParameters);
    }
    Checkpoint const checkpoint = Checkpoint::open(world, folder.file("ck"));
    std::vector<NamedParameter> others = kParameters;
    others[3].name = "beta";
    expect_error(ErrorCode::invalid_argument, {"beta", "not in the checkpoint"},
                 [&] { trainee.load_from(checkpoint, others); });
    others = kParameters;
    others[3].shape = {18};
    expect_error(ErrorCode::invalid_argument, {"parameter bias", "[18] is 18 elements", "has 17"},
                 [&] { trainee.load_from(checkpoint, others); });
    others.pop_back();
    expect_error(ErrorCode::invalid_argument, {"4 parameters", "has 5"},
                 [&] { trainee.load_from(checkpoint, others); });
    // Those before it are not loaded either, on no rank.
    trainee.step(0);
    State const before = trainee.state();
    others = kParameters;
    if (world.rank() == 1) others[2].shape = {17, 130};
    expect_error(ErrorCode::invalid_argument, {"matrix", "[17, 130]", "[130, 17]"},
                 [&] { trainee.load_from(checkpoint, others); });
    EXPECT_EQ(trainee.state(), before);
    trainee.load_from(checkpoint, kParameters);
    EXPECT_NE(trainee.state(), before);
  });
}

TEST(TrainingCheckpointErrorsTest, TensorsThatDoNotFitChangeNothing) {
  TemporaryFolder const folder;
  std::vector<float> const ones(30, 1.0F);
  std::vector<std::int64_t> const integers(30, 1);
  std::span<float const> const floats(ones);
  auto const expect = [&](CheckpointTensor const& odd, std::initializer_list<char const*> parts) {
    run_thread_ranks(1, [&](Communicator& world) {
      CheckpointSaver saver(world, folder.file("ck"));
      std::vector<CheckpointTensor> tensors{{"a", {30}, 0, floats}};
      if (odd.name != "b") tensors.push_back({"b", {30}, 0, floats});
      tensors.push_back(odd);
      saver.save(tensors, {});
      saver.wait();
      std::vector<std::vector<float>> mine(2, std::vector<float>(30, -7.0F));
      Optimizer optimizer(std::vector<BufferView>{std::span(mine[0]), std::span(mine[1])}, SgdOptions{});
      GradientCompressor compressor({.error_feedback = true});
      expect_error(ErrorCode::invalid_argument, parts, [&] {
        load(Checkpoint::open(folder.file("ck")), world, optimizer,
             std::vector<NamedParameter>{{"a", {30}}, {"b", {30}}}, &compressor);
      });
      EXPECT_EQ(mine[0], std::vector<float>(30, -7.0F));
    });
  };
  expect({"b", {5, 6}, 0, floats}, {"parameter b", "[30]", "[5, 6]"});
  expect({"b", {30}, 0, std::span<std::int64_t const>(integers)}, {"parameter b", "i64"});
  expect({"compression.b.residual", {30}, 0, floats}, {"parameter b", "compression.b.residual"});
  expect({"compression.b.residual", {1, 30}, 0, std::span<std::int64_t const>(integers)}, {"parameter b", "i64"});
}

TEST(TrainingCheckpointErrorsTest, AnotherOptimizerIsRefusedOnAllRanks) {
  TemporaryFolder const folder;
  std::vector<NamedParameter> const named{{"w", {30}}};
  auto const expect = [&](std::vector<OptimizerOptions> const& groups, auto const& load_it) {
    for (OptimizerOptions const& options : groups) {
      run_thread_ranks(2, [&](Communicator& world) {
        Checkpoint const checkpoint = Checkpoint::open(world, folder.file("ck"));
        expect_error(ErrorCode::invalid_argument, {"AdamW", std::string(name_of(options)).c_str()},
                     [&] { load_it(world, checkpoint, options); });
      });
    }
  };
  run_thread_ranks(2, [&](Communicator& world) {
    Buffer mine = Buffer::host(30, DataType::f32);
    Optimizer optimizer(std::vector{mine.view()}, AdamWOptions{});
    CheckpointSaver saver(world, folder.file("ck"));
    save(saver, world, optimizer, named);
  });
  // Lion's only state has the name of one of AdamW's, Adam's have all of them.
  expect({LionOptions{}, AdamOptions{}, SgdOptions{}},
         [&](Communicator& world, Checkpoint const& from, OptimizerOptions const& options) {
           Buffer mine = Buffer::host(30, DataType::f32);
           Optimizer optimizer(std::vector{mine.view()}, options);
           load(from, world, optimizer, named);
         });
  expect({LionOptions{}, AdamOptions{}},
         [&](Communicator& world, Checkpoint const& from, OptimizerOptions const& options) {
           Buffer mine = Buffer::host(30, DataType::f32);
           ZeroOptions zero_options;
           zero_options.buckets.rebuild = false;
           ZeroOptimizer zero(world, {{{mine.view()}, options}}, zero_options);
           load(from, world, zero, named);
         });
}

/// Of `options`, three tensors "a", "b", "c" of 30 elements that are 1, 2 and 3.
void save_three(std::filesystem::path const& folder, AdamWOptions const& options) {
  run_thread_ranks(2, [&](Communicator& world) {
    std::vector<std::vector<float>> mine{std::vector<float>(30, 1.0F), std::vector<float>(30, 2.0F),
                                         std::vector<float>(30, 3.0F)};
    Optimizer optimizer(std::vector<BufferView>{std::span(mine[0]), std::span(mine[1]), std::span(mine[2])}, options);
    CheckpointSaver saver(world, folder);
    save(saver, world, optimizer, std::vector<NamedParameter>{{"a", {30}}, {"b", {30}}, {"c", {30}}});
  });
}

TEST(TrainingCheckpointErrorsTest, ABiggerModelIsRefusedUnlessTheLoadIsPartial) {
  TemporaryFolder const folder;
  save_three(folder.file("ck"), {});
  std::vector<NamedParameter> const named{{"a", {30}}, {"b", {30}}};
  run_thread_ranks(3, [&](Communicator& world) {
    Checkpoint const checkpoint = Checkpoint::open(world, folder.file("ck"));
    std::vector<std::vector<float>> mine(2, std::vector<float>(30, -7.0F));
    std::vector<BufferView> const views{std::span(mine[0]), std::span(mine[1])};
    std::vector<float> const untouched(30, -7.0F);
    auto const refused = [](auto const& load_it) {
      expect_error(ErrorCode::invalid_argument, {"/ck has tensor c and 2 more", "LoadOptions::partial"}, load_it);
    };

    ZeroOptions options;
    options.buckets.rebuild = false;
    ZeroOptimizer zero(world, {{views, AdamWOptions{}}}, options);
    refused([&] { load(checkpoint, world, zero, named); });
    EXPECT_EQ(zero.master(0), untouched);
    load(checkpoint, world, zero, named, nullptr, {.partial = true});
    EXPECT_EQ(zero.master(0), std::vector<float>(30, 1.0F));
    EXPECT_EQ(zero.master(1), std::vector<float>(30, 2.0F));

    FullySharded sharded(world, {{"unit", {{views, AdamWOptions{}}}}});
    refused([&] { load(checkpoint, world, sharded, named); });
    EXPECT_EQ(sharded.master(1), untouched);
    load(checkpoint, world, sharded, named, nullptr, {.partial = true});
    EXPECT_EQ(sharded.master(1), std::vector<float>(30, 2.0F));

    Optimizer optimizer(views, AdamWOptions{});
    refused([&] { load(checkpoint, world, optimizer, named); });
    EXPECT_EQ(mine[0], untouched);
    load(checkpoint, world, optimizer, named, nullptr, {.partial = true});
    EXPECT_EQ(mine[0], std::vector<float>(30, 1.0F));
  });
}

TEST(TrainingCheckpointErrorsTest, StatesMoreOrLessThanTheOptimizersAreRefused) {
  TemporaryFolder const folder;
  std::vector<NamedParameter> const named{{"a", {30}}, {"b", {30}}, {"c", {30}}};
  for (bool const saved : {true, false}) {
    save_three(folder.file("ck"), {.amsgrad = saved});
    run_thread_ranks(2, [&](Communicator& world) {
      Checkpoint const checkpoint = Checkpoint::open(world, folder.file("ck"));
      std::vector<std::vector<float>> mine(3, std::vector<float>(30, -7.0F));
      Optimizer optimizer(std::vector<BufferView>{std::span(mine[0]), std::span(mine[1]), std::span(mine[2])},
                          AdamWOptions{.amsgrad = !saved});
      expect_error(ErrorCode::invalid_argument,
                   {saved ? "/ck has tensor optimizer.a.max_exp_avg_sq and 2 more"
                          : "parameter a: tensor optimizer.a.max_exp_avg_sq is not in the checkpoint"},
                   [&] { load(checkpoint, world, optimizer, named); });
      EXPECT_EQ(mine[0], std::vector<float>(30, -7.0F));
    });
  }
}

TEST(TrainingCheckpointErrorsTest, AShapeThatDoesNotFitIsNotSaved) {
  TemporaryFolder const folder;
  for (std::string const strategy : {"replicated", "zero", "sharded"}) {
    run_thread_ranks(2, [&](Communicator& world) {
      auto const trainee = make(world, strategy, DataType::f32, true);
      CheckpointSaver saver(world, folder.file(strategy));
      std::vector<NamedParameter> others = kParameters;
      if (world.rank() == 1) others[2].shape = {130, 18};  // one rank's mistake is all ranks' refusal
      expect_error(ErrorCode::invalid_argument, {"parameter matrix", "[130, 18]", "2340", "2210"},
                   [&] { trainee->save_to(saver, others); });
      others = kParameters;
      others[4].name = "bias";
      expect_error(ErrorCode::invalid_argument, {"parameter bias", "two tensors of this name"},
                   [&] { trainee->save_to(saver, others); });
      others[4].name = "optimizer.bias.exp_avg";
      expect_error(ErrorCode::invalid_argument, {"optimizer.bias.exp_avg", "two tensors of this name"},
                   [&] { trainee->save_to(saver, others); });
    });
    EXPECT_EQ(SaveFiles(folder.file(strategy)).entries(), 0U);
  }
}

TEST(TrainingCheckpointErrorsTest, ADivergedModelDoesNotReplaceTheSaveBefore) {
  TemporaryFolder const folder;
  for (std::string const strategy : {"replicated", "zero", "sharded"}) {
    run_thread_ranks(2, [&](Communicator& world) {
      auto const trainee = make(world, strategy, DataType::f32, true);
      CheckpointSaver saver(world, folder.file(strategy));
      trainee->step(0);
      trainee->save_to(saver);
      trainee->step(kDiverges);
      expect_error(ErrorCode::invalid_argument, {"matrix", "element 1234 is not a number", "nothing was written"},
                   [&] { trainee->save_to(saver); });
      saver.wait();
    });
    EXPECT_EQ(Checkpoint::open(folder.file(strategy)).info().step, 1) << strategy;
  }
}

}  // namespace
}  // namespace weft::test
