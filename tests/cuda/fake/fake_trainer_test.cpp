// train_gpt's steps on a GPU in host memory, beside the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/fake/on_fake_nccl.hpp"
#include "data.hpp"
#include "harness/ranks.hpp"
#include "strategies/strategy.hpp"

namespace weft::test {
namespace {

using train_gpt::BatchSampler;
using train_gpt::GptModel;
using train_gpt::GptParameters;
using train_gpt::Options;
using train_gpt::Strategy;
using train_gpt::Text;

Options small() {
  Options options;
  options.model = {.layers = 2, .width = 16, .heads = 2, .seq = 8};
  options.batch = 4;
  options.lr = 3e-3F;
  options.device = "cuda";
  options.first_bucket_mb = options.bucket_mb = options.last_bucket_mb = 0.004;  // many buckets
  return options;
}

Text const& some_text() {
  static Text const kText = [] {
    Text text{"test", {}};
    for (int i = 0; i < 3000; ++i) text.bytes.push_back(static_cast<std::uint8_t>("the quick brown fox "[i * i % 20]));
    return text;
  }();
  return kText;
}

/// One rank's run.
struct Training {
  std::vector<float> losses;
  std::vector<std::vector<float>> values;
  std::vector<bool> applied;
};

class FakeTrainer : public OnFakeNccl {
 protected:
  static void train(Strategy& strategy, Communicator const& world, Options const& options, int steps, Training& run) {
    BatchSampler const sampler(some_text(), options.model.seq, options.batch, options.seed, world.rank(), world.size());
    for (int step = 0; step < steps; ++step) {
      auto const before = strategy.applied_steps();
      run.losses.push_back(strategy.step(sampler.sample(step, options.accumulate), options.schedule().at(before)).loss);
      run.applied.push_back(strategy.applied_steps() > before);
    }
    GptParameters const parameters(options.model);
    for (std::size_t i = 0; i < parameters.tensors().size(); ++i) run.values.push_back(strategy.values(i));
  }
  static Training on_gpu(Options const& options, int steps, int ranks = 1) {
    Training run;
    run_thread_ranks(ranks, [&](Communicator& world) {
      Training mine;
      auto const strategy = make_on_device(world.duplicate(world.options()), options, GptParameters(options.model));
      train(*strategy, world, options, steps, mine);
      if (world.rank() == 0) run = mine;
    });
    return run;
  }
  static Training on_cpu(Options const& options, int steps, int ranks = 1) {
    Training run;
    run_thread_ranks(ranks, [&](Communicator& world) {
      Training mine;
      GptModel model(options.model, {.max_batch = options.batch / ranks / options.accumulate});
      auto const strategy = make_strategy(world.duplicate(world.options()), options, model);
      train(*strategy, world, options, steps, mine);
      if (world.rank() == 0) run = mine;
    });
    return run;
  }
};

void expect_close(std::vector<float> const& got, std::vector<float> const& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << "step " << i;
}

struct Case {
  char const* name;
  void (*change)(Options&);
  double tolerance;  ///< of losses beside the CPU's
  int ranks = 1;
  int steps = 40;
};
constexpr Case kCases[]{
    {"Plain", [](Options&) {}, 1e-3, 1, 100},
    {"Clip", [](Options& o) { o.clip = 0.5; }, 1e-3},
    {"Lamb", [](Options& o) { o.optimizer = "lamb"; }, 1e-3},
    {"Sgd8Bit", [](Options& o) { o.optimizer = "sgd", o.state = "8bit"; }, 1e-2},
    {"Passes", [](Options& o) { o.accumulate = 2; }, 1e-3},
    {"Recompute", [](Options& o) { o.recompute = true; }, 1e-3},
    // Activations are of 16 bits here, and of 32 on the CPU.
    {"Bf16", [](Options& o) { o.precision = "bf16"; }, 5e-2},
    {"Fp16", [](Options& o) { o.precision = "fp16"; }, 1e-2},
    {"Fp16Clip", [](Options& o) { o.precision = "fp16", o.clip = 0.5, o.accumulate = 2; }, 1e-2},
    {"Zero1", [](Options& o) { o.strategy = "zero1"; }, 1e-3, 2},
    {"Zero1Fp16Clip", [](Options& o) { o.strategy = "zero1", o.precision = "fp16", o.clip = 0.5; }, 1e-2, 2},
    {"Zero1Passes", [](Options& o) { o.strategy = "zero1", o.accumulate = 2, o.clip = 0.5; }, 1e-3, 2},
    {"Zero1Optimal", [](Options& o) { o.strategy = "zero1", o.bucket_policy = "optimal"; }, 1e-3, 2},
    {"Zero2Optimal", [](Options& o) { o.strategy = "zero2", o.bucket_policy = "optimal"; }, 1e-3, 2},
    {"Zero1Lamb", [](Options& o) { o.strategy = "zero1", o.optimizer = "lamb"; }, 1e-3, 2},
    {"Zero2", [](Options& o) { o.strategy = "zero2"; }, 1e-3, 2},
    {"Zero2Fp16Clip", [](Options& o) { o.strategy = "zero2", o.precision = "fp16", o.clip = 0.5; }, 1e-2, 2},
    {"Zero2Passes", [](Options& o) { o.strategy = "zero2", o.accumulate = 2, o.clip = 0.5; }, 1e-3, 2},
    {"Zero3", [](Options& o) { o.strategy = "zero3"; }, 1e-3, 2},
    {"Zero3Fp16Clip", [](Options& o) { o.strategy = "zero3", o.precision = "fp16", o.clip = 0.5; }, 1e-2, 2},
    {"Zero3Bf16", [](Options& o) { o.strategy = "zero3", o.precision = "bf16"; }, 5e-2, 2},
    {"Zero3Passes", [](Options& o) { o.strategy = "zero3", o.accumulate = 2, o.clip = 0.5, o.prefetch = 0; }, 1e-3, 2},
    {"Zero3LambFp16", [](Options& o) { o.strategy = "zero3", o.optimizer = "lamb", o.precision = "fp16"; }, 1e-2, 2},
    {"HsdpFp16", [](Options& o) { o.strategy = "hsdp", o.precision = "fp16"; }, 1e-2, 4},
    {"HsdpClipRecompute", [](Options& o) { o.strategy = "hsdp", o.clip = 0.5, o.recompute = true; }, 1e-3, 4},
    {"TwoRanks", [](Options&) {}, 1e-3, 2},
    {"TwoRanksOptimal", [](Options& o) { o.bucket_policy = "optimal"; }, 1e-3, 2},
    {"TwoRanksOptimalCompress", [](Options& o) { o.bucket_policy = "optimal", o.compress = "bf16"; }, 1e-3, 2},
    {"TwoRanksCompress", [](Options& o) { o.compress = "bf16", o.error_feedback = true; }, 1e-3, 2},
    {"Zero2Compress", [](Options& o) { o.strategy = "zero2", o.compress = "bf16"; }, 1e-3, 2},
    {"TwoRanksBf16Passes", [](Options& o) { o.precision = "bf16", o.accumulate = 2; }, 5e-2, 2},
    {"TwoRanksFp16Clip", [](Options& o) { o.precision = "fp16", o.clip = 0.5; }, 1e-2, 2},
};

class FakeTrainerCases : public FakeTrainer, public ::testing::WithParamInterface<Case> {
 protected:
  static Options options() {
    auto options = small();
    GetParam().change(options);
    return options;
  }
  /// Those that hold the host up: once the loss is there, the times of a step's parts are asked for.
  [[nodiscard]] std::size_t waits_here() const { return gpu.host_waits_here() - gpu.count_here("cudaEventQuery"); }
};

TEST_P(FakeTrainerCases, LossesAreTheCpus) {
  int const ranks = GetParam().ranks;
  auto const device = on_gpu(options(), GetParam().steps, ranks);
  auto const host = on_cpu(options(), GetParam().steps, ranks);
  expect_close(device.losses, host.losses, GetParam().tolerance);
  EXPECT_EQ(device.applied, host.applied);
  EXPECT_LT(device.losses.back(), device.losses.front());
}

class FakeTrainerGraphs : public FakeTrainerCases {};

TEST_P(FakeTrainerGraphs, AGraphHasTheBitsOfTheEagerStep) {
  auto changed = options();
  auto const eager = on_gpu(changed, 6, GetParam().ranks);
  auto const launches = gpu.count("cudaGraphLaunch");
  changed.cuda_graph = true;
  auto const graph = on_gpu(changed, 6, GetParam().ranks);
  EXPECT_EQ(graph.losses, eager.losses);
  EXPECT_TRUE(graph.values == eager.values);
  int const launched = changed.bucket_policy == "optimal" ? 4 : 5;
  EXPECT_EQ(gpu.count("cudaGraphLaunch") - launches, static_cast<std::size_t>(launched * GetParam().ranks));
}

TEST_P(FakeTrainerCases, TheHostWaitsForTheLossOnly) {
  for (bool const graph : {false, true}) {
    auto changed = options();
    changed.cuda_graph = graph;
    run_thread_ranks(GetParam().ranks, [&](Communicator& world) {
      auto const strategy = make_on_device(world.duplicate(world.options()), changed, GptParameters(changed.model));
      Training run;
      train(*strategy, world, changed, 3, run);
      BatchSampler const sampler(some_text(), 8, changed.batch, 1, world.rank(), world.size());
      for (int step = 3; step < 6; ++step) {
        auto const waits = waits_here();
        auto const allocated = gpu.count_here("cudaMalloc");
        static_cast<void>(strategy->step(sampler.sample(step, changed.accumulate), 1e-3));
        EXPECT_EQ(waits_here() - waits, 1U);
        EXPECT_EQ(gpu.count_here("cudaMalloc"), allocated);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, FakeTrainerCases, ::testing::ValuesIn(kCases),
                         [](auto const& one) { return std::string(one.param.name); });

INSTANTIATE_TEST_SUITE_P(Cases, FakeTrainerGraphs, ::testing::ValuesIn(kCases),
                         [](auto const& one) { return std::string(one.param.name); });

TEST_F(FakeTrainer, StepsThatOverflowAreSkippedAsOnTheCpu) {
  for (bool const graph : {false, true}) {
    auto options = small();
    options.precision = "fp16";
    options.cuda_graph = graph;
    options.loss_scale = 1e9;
    options.growth_interval = 4;
    auto const device = on_gpu(options, 25);
    auto const host = on_cpu(options, 25);
    EXPECT_FALSE(device.applied.front());
    EXPECT_TRUE(std::find(device.applied.begin() + 3, device.applied.end(), true) != device.applied.end());
    expect_close(device.losses, host.losses, 5e-2);
  }
}

TEST_F(FakeTrainer, GoesOnFromTheCpusStateAndGivesItsOwn) {
  for (std::string const strategy : {"ddp", "zero1", "zero2", "zero3", "hsdp"}) {
    auto options = small();
    options.precision = "bf16";
    options.strategy = strategy;
    options.resume = "a file";  // shards stay where they are
    run_thread_ranks(2, [&](Communicator& world) {
      GptParameters const parameters(options.model);
      GptModel model(options.model, {.max_batch = options.batch / 2});
      auto const host = make_strategy(world.duplicate(world.options()), options, model);
      auto const device = make_on_device(world.duplicate(world.options()), options, parameters);
      Training run;
      train(*host, world, options, 5, run);
      for (std::size_t i = 0; i < parameters.tensors().size(); ++i) {
        device->set_values(i, host->values(i));
        for (std::size_t which = 0; which < host->state_count(); ++which)
          device->set_state(i, which, host->state(i, which));
      }
      device->set_applied_steps(host->applied_steps());
      EXPECT_EQ(device->applied_steps(), 5);
      for (std::size_t i = 0; i < parameters.tensors().size(); ++i) {
        EXPECT_EQ(device->values(i), host->values(i)) << strategy;
        EXPECT_EQ(device->state(i, 1), host->state(i, 1)) << strategy;
      }
      Training on_host, on_device;
      train(*host, world, options, 5, on_host);
      train(*device, world, options, 5, on_device);
      expect_close(on_device.losses, on_host.losses, 1e-2);
    });
  }
}

TEST_F(FakeTrainer, CompressedGradientsAreRounded) {
  for (std::string const strategy : {"ddp", "zero1", "zero2"}) {
    auto options = small();
    options.strategy = strategy;
    auto const exact = on_gpu(options, 3, 2);
    options.compress = "bf16";
    auto const rounded = on_gpu(options, 3, 2);
    options.error_feedback = true;
    auto const fed_back = on_gpu(options, 3, 2);
    EXPECT_FALSE(rounded.values == exact.values) << strategy;
    EXPECT_FALSE(fed_back.values == rounded.values) << strategy;
  }
}

/// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-fake-trainer-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(Folder const&) = delete;
  Folder& operator=(Folder const&) = delete;
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

 private:
  std::string path_;
};

TEST_F(FakeTrainer, FoldersAreSavedAndGoOnUnderAnotherStrategy) {
  auto options = small();
  options.compress = "bf16";
  options.error_feedback = true;
  std::vector<NamedParameter> named;
  GptParameters const parameters(options.model);
  for (auto const& tensor : parameters.tensors()) named.push_back({tensor.name, tensor.shape});
  for (std::string const from : {"ddp", "zero1", "zero2", "zero3", "hsdp"}) {
    for (std::string const to : {"ddp", "zero2", "zero3"}) {
      Folder const folder;
      options.resume = folder.path();  // shards stay where they are
      run_thread_ranks(2, [&](Communicator& world) {
        auto const made = [&](std::string const& strategy) {
          Options one = options;
          one.strategy = strategy;
          if (strategy == "zero3" || strategy == "hsdp") one.compress = "none", one.error_feedback = false;
          return make_on_device(world.duplicate(world.options()), one, GptParameters(one.model));
        };
        auto const first = made(from);
        Training run;
        train(*first, world, options, 3, run);
        CheckpointSaver saver(world, folder.path());
        first->save(saver, named, {});
        saver.wait();
        auto const checkpoint = Checkpoint::open(world, folder.path());
        auto const second = made(to);
        second->load(checkpoint, world, named);
        EXPECT_EQ(second->applied_steps(), 3);
        for (std::size_t i = 0; i < named.size(); ++i) {
          EXPECT_EQ(second->values(i), first->values(i)) << from << " to " << to << ": " << named[i].name;
          EXPECT_EQ(second->state(i, 1), first->state(i, 1)) << from << " to " << to << ": " << named[i].name;
        }
        Training before, after;
        train(*first, world, options, 2, before);
        train(*second, world, options, 2, after);
        expect_close(after.losses, before.losses, 1e-3);
      });
    }
  }
}

// Which may leave other units in memory than a step does.
TEST_F(FakeTrainer, AGraphIsRecordedAnewBehindOtherPasses) {
  for (std::string const strategy : {"ddp", "zero2", "zero3"}) {
    auto options = small();
    options.strategy = strategy;
    std::vector<Training> runs;
    for (bool const graph : {false, true}) {
      options.cuda_graph = graph;
      Training run;
      run_thread_ranks(2, [&](Communicator& world) {
        Training mine;
        auto const made = make_on_device(world.duplicate(world.options()), options, GptParameters(options.model));
        train(*made, world, options, 4, mine);
        static_cast<void>(made->next_byte_logits(std::vector<std::uint8_t>{1, 2, 3}));
        train(*made, world, options, 4, mine);
        if (world.rank() == 0) run = mine;
      });
      runs.push_back(run);
    }
    EXPECT_EQ(runs[1].losses, runs[0].losses) << strategy;
    EXPECT_TRUE(runs[1].values == runs[0].values) << strategy;
  }
}

TEST_F(FakeTrainer, CommunicationIsTimedInTheGpusTime) {
  auto options = small();
  options.accumulate = 2;
  run_thread_ranks(2, [&](Communicator& world) {
    GptParameters const parameters(options.model);
    auto const strategy = make_on_device(world.duplicate(world.options()), options, parameters);
    BatchSampler const sampler(some_text(), options.model.seq, options.batch, 1, world.rank(), world.size());
    for (int step = 0; step < 3; ++step) {
      auto const times = strategy->step(sampler.sample(step, options.accumulate), 1e-3);
      auto const traffic = strategy->traffic();
      ASSERT_EQ(traffic.size(), 1U);
      if (step == 0) continue;  // moves the gradients
      std::size_t bytes = 0;
      for (BucketTiming const& bucket : traffic[0].buckets) {
        bytes += bucket.bytes;
        EXPECT_LE(times.backward.back().start, bucket.ready);  // the pass that is sent
        EXPECT_LE(bucket.ready, times.backward.back().end);
        EXPECT_LE(bucket.ready, bucket.started);
        EXPECT_LE(bucket.started, bucket.finished);
        EXPECT_LE(bucket.finished, times.optimizer.front().start);  // which waits for it
      }
      EXPECT_GE(bytes, parameters.count() * sizeof(float));
      EXPECT_GT(traffic[0].buckets.size(), 3U);
      ASSERT_EQ(times.forward.size(), 2U);
      ASSERT_EQ(times.backward.size(), 2U);
      EXPECT_LE(times.forward[1].end, times.backward[1].start);
      EXPECT_GE(times.forward[0].start, times.start);
      EXPECT_LE(times.optimizer.back().end, times.end);
      auto const report = overlap_of(times, traffic);
      EXPECT_GT(report.communication_ms, 0);
      EXPECT_GT(report.compute_ms, 0);
    }
  });
}

TEST_F(FakeTrainer, GathersReductionsAndUpdatesOfShardsAreTimedToo) {
  for (std::string const strategy : {"zero1", "zero2", "zero3", "hsdp"}) {
    auto options = small();
    options.strategy = strategy;
    options.clip = strategy == "zero2" || strategy == "zero3" ? 0.5 : 0;
    run_thread_ranks(4, [&](Communicator& world) {
      GptParameters const parameters(options.model);
      auto const made = make_on_device(world.duplicate(world.options()), options, parameters);
      BatchSampler const sampler(some_text(), options.model.seq, options.batch, 1, world.rank(), world.size());
      auto last_end = std::chrono::steady_clock::time_point::min();
      for (int step = 0; step < 4; ++step) {
        auto const times = made->step(sampler.sample(step, 1), 1e-3);
        auto const traffic = made->traffic();
        ASSERT_EQ(traffic.size(), 2U);
        if (step < 2) continue;  // the first one moves buckets, and nothing came before it
        std::map<std::string, std::size_t> bytes;
        for (auto const& kind : traffic) {
          for (BucketTiming const& bucket : kind.buckets) {
            bytes[kind.name] += bucket.bytes;
            EXPECT_LE(bucket.ready, bucket.started) << strategy << ' ' << kind.name;
            EXPECT_LE(bucket.started, bucket.finished) << strategy << ' ' << kind.name;
            EXPECT_GE(bucket.started, times.start) << strategy << ' ' << kind.name;
            EXPECT_LE(bucket.finished, times.end) << strategy << ' ' << kind.name;
          }
        }
        EXPECT_GT(bytes["reduce_scatter"], parameters.count() * sizeof(float) * 9 / 10) << strategy;
        ASSERT_FALSE(times.optimizer.empty());
        // Nothing is updated before all of it is known, where a norm is asked for; and never before it has come.
        auto const reduced = [](auto const& a, auto const& b) { return a.finished < b.finished; };
        auto const& reductions = traffic[1].buckets;
        auto const first = std::min_element(reductions.begin(), reductions.end(), reduced)->finished;
        auto const last = std::max_element(reductions.begin(), reductions.end(), reduced)->finished;
        EXPECT_GE(times.optimizer.front().start, options.clip > 0 ? last : first) << strategy;
        EXPECT_GT(times.forward.size(), 2U) << strategy;  // waits are between
        for (std::size_t i = 1; i < times.forward.size(); ++i)
          EXPECT_LE(times.forward[i - 1].end, times.forward[i].start) << strategy;
        EXPECT_GT(times.start, last_end);
        last_end = times.end;
        auto const report = overlap_of(times, traffic);
        EXPECT_GT(report.communication_ms, 0) << strategy;
        EXPECT_GT(report.compute_ms, 0) << strategy;
      }
    });
  }
}

TEST_F(FakeTrainer, ScoresTheNextByteAsTheCpuDoes) {
  auto const options = small();
  run_thread_ranks(1, [&](Communicator& world) {
    GptModel model(options.model, {.max_batch = options.batch});
    auto const host = make_strategy(world.duplicate(world.options()), options, model);
    auto const device = make_on_device(world.duplicate(world.options()), options, GptParameters(options.model));
    for (std::string const text : {"t", "the qui", "the quic"}) {
      std::vector<std::uint8_t> const bytes(text.begin(), text.end());
      auto const got = device->next_byte_logits(bytes);
      auto const expected = host->next_byte_logits(bytes);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << text;
    }
  });
}

}  // namespace
}  // namespace weft::test
