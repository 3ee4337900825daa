// Ranks that have other gradients than the others, or fewer steps, on a GPU's streams: the bits of the CPU.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "bucketing/gradients.hpp"
#include "cuda/fake/fake_sharded.hpp"
#include "weft/cuda_graph.hpp"
#include "weft/data_parallel.hpp"

namespace weft::test {
namespace {

using FakeUneven = FakeSharded;

constexpr std::size_t kTensors = 11;

/// What a run does with memory: at once, or as kernels of a stream.
class Place {
 public:
  Place(FakeGpu& gpu, bool on_gpu) : gpu_(gpu) {
    if (on_gpu) compute_ = gpu.make_stream();
  }
  [[nodiscard]] std::optional<Stream> const& compute() const { return compute_; }
  void run(std::function<void()> kernel) {
    if (compute_) return launch(gpu_, *compute_, std::move(kernel));
    kernel();
  }
  void fill(BufferView const& view, std::function<float(std::size_t i, float before)> value) {
    run([view, value = std::move(value)] {
      for (std::size_t i = 0; i < view.count; ++i) floats(view)[i] = value(i, floats(view)[i]);
    });
  }
  [[nodiscard]] std::vector<BufferView> parameters(int rank) {
    std::vector<BufferView> views;
    for (TensorSpec const& spec : model(kTensors, 11)) {
      Buffer const values = Buffer::host(spec.count, spec.dtype);
      for (float& value : floats(values.view())) value = static_cast<float>(rank + 1);
      memory_.push_back(compute_ ? gpu_.allocate(spec.count, spec.dtype) : Buffer::host(spec.count, spec.dtype));
      views.push_back({memory_.back().data(), spec.count, spec.dtype, compute_ ? kGpu : Device{}});
      if (spec.count != 0) std::memcpy(views.back().data, values.data(), values.view().bytes());
    }
    return views;
  }
  /// What is there once all kernels have run.
  [[nodiscard]] std::vector<std::vector<float>> values(std::vector<BufferView> const& views) {
    if (compute_) compute_->synchronize();
    std::vector<std::vector<float>> values;
    for (BufferView const& view : views) values.emplace_back(floats(view).begin(), floats(view).end());
    return values;
  }

 private:
  FakeGpu& gpu_;
  std::optional<Stream> compute_;
  std::vector<Buffer> memory_;
};

std::vector<BufferView> gradients_of(DataParallel& ddp) {
  std::vector<BufferView> views;
  for (std::size_t i = 0; i < ddp.parameter_count(); ++i) views.push_back(ddp.gradient(i));
  return views;
}

/// Whether `rank` has a gradient: of every fifth tensor no rank has.
bool is_used(int rank, std::size_t step, std::size_t tensor, UnusedGradients unused) {
  std::size_t const when = unused == UnusedGradients::fixed ? 0 : step;
  return tensor % 5 != 0 && (static_cast<std::size_t>(rank) + when * 7 + tensor * 3) % 3 != 0;
}

struct Outcome {
  std::vector<std::vector<std::vector<float>>> gradients;  ///< by step
  std::vector<std::vector<bool>> present;

  bool operator==(Outcome const& other) const { return gradients == other.gradients && present == other.present; }
};

Outcome steps_with_unused(Communicator& world, Place& place, BucketerOptions options) {
  options.compute = place.compute();
  DataParallel ddp(world, place.parameters(world.rank()), options);
  Outcome outcome;
  for (std::size_t step = 0; step < 4; ++step) {
    for (BufferView const& view : gradients_of(ddp)) {
      place.fill(view, [rank = world.rank()](std::size_t i, float) {
        return static_cast<float>(1000 * rank) + static_cast<float>(i);
      });
    }
    for (std::size_t const t : shuffled(kTensors, 10 * step + static_cast<std::size_t>(world.rank()))) {
      if (is_used(world.rank(), step, t, options.unused)) {
        place.fill(ddp.gradient(t),
                   [=, rank = world.rank()](std::size_t i, float) { return gradient_value(rank, step, t, i); });
        ddp.mark_ready(t);
      } else if (step % 2 == 0) {
        ddp.bucketer().mark_unused(t);
      }
    }
    ddp.finish();
    outcome.gradients.push_back(place.values(gradients_of(ddp)));
    outcome.present.emplace_back();
    for (std::size_t t = 0; t < kTensors; ++t) outcome.present.back().push_back(ddp.bucketer().has_gradient(t));
  }
  return outcome;
}

TEST_F(FakeUneven, KeepsGradientsThatNoRankHas) {
  for (int const ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](Communicator& world) {
      for (UnusedGradients const unused : {UnusedGradients::zero, UnusedGradients::find, UnusedGradients::fixed}) {
        for (bool const rebuild : {false, true}) {
          BucketerOptions const options{.limits = {2048, 8192}, .rebuild = rebuild, .unused = unused};
          Place gpu_side(gpu, true);
          Place host_side(gpu, false);
          Outcome const on_host = steps_with_unused(world, host_side, options);
          EXPECT_EQ(steps_with_unused(world, gpu_side, options), on_host) << ranks << " ranks";
          for (std::size_t step = 0; step < 4 && unused != UnusedGradients::zero; ++step) {
            EXPECT_FALSE(on_host.present[step][5]);
            EXPECT_EQ(on_host.gradients[step][5].at(1), static_cast<float>(1000 * world.rank() + 1));
          }
        }
      }
    });
  }
}

TEST_F(FakeUneven, WhatHasToBeFoundOutCannotBeCaptured) {
  run_ranks(2, [&](Communicator& world) {
    Place place(gpu, true);
    Stream compute = *place.compute();
    DataParallel ddp(world, place.parameters(world.rank()),
                     {.rebuild = false, .unused = UnusedGradients::find, .compute = compute});
    auto const step = [&] {
      for (std::size_t t = 0; t < kTensors; ++t) ddp.mark_ready(t);
      ddp.finish();
    };
    step();
    compute.synchronize();
    expect_refused([&] { static_cast<void>(cuda::Graph::record(compute, step)); },
                   "which tensors have a gradient cannot be found out within a CUDA graph");
  });
}

std::vector<std::vector<float>> joined(Communicator& world, Place& place, std::vector<std::size_t> const& steps,
                                       JoinDivisor divisor, bool shadow_updates) {
  DataParallel ddp(world, place.parameters(world.rank()), {.limits = {2048, 8192}, .compute = place.compute()});
  auto const descend = [&] {
    place.run([] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });  // whoever does not wait is early
    for (std::size_t p = 0; p < kTensors; ++p) {
      place.fill(ddp.parameter(p),
                 [from = ddp.gradient(p)](std::size_t i, float x) { return x - 0.5F * floats(from)[i]; });
    }
  };
  auto const mine = [&] {
    for (std::size_t step = 0; step < steps[static_cast<std::size_t>(world.rank())]; ++step) {
      for (std::size_t const p : shuffled(kTensors, 50 * step + static_cast<std::size_t>(world.rank()))) {
        place.fill(ddp.gradient(p),
                   [=, rank = world.rank()](std::size_t i, float) { return gradient_value(rank, step, p, i); });
        ddp.mark_ready(p);
      }
      ddp.finish();
      descend();
    }
  };
  ddp.join({divisor, false}, mine, shadow_updates ? descend : std::function<void()>());
  std::vector<BufferView> views;
  for (std::size_t p = 0; p < kTensors; ++p) views.push_back(ddp.parameter(p));
  return place.values(views);
}

TEST_F(FakeUneven, RanksThatRanOutFollowTheOthers) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 12; ++round) {
    std::vector<std::size_t> steps(1 + random() % 3);
    for (std::size_t& one : steps) one = random() % 4;
    auto const divisor = random() % 2 == 0 ? JoinDivisor::all_ranks : JoinDivisor::active_ranks;
    bool const shadow_updates = random() % 2 == 0;
    SCOPED_TRACE(testing::Message() << "round " << round << ", steps " << testing::PrintToString(steps));
    run_ranks(static_cast<int>(steps.size()), [&](Communicator& world) {
      Place gpu_side(gpu, true);
      Place host_side(gpu, false);
      EXPECT_EQ(joined(world, gpu_side, steps, divisor, shadow_updates),
                joined(world, host_side, steps, divisor, shadow_updates));
    });
  }
}

}  // namespace
}  // namespace weft::test
