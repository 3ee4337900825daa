#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/data_parallel.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::test {

/// A model's parameters in private memory; the same on every rank.
class Parameters {
 public:
  explicit Parameters(std::vector<TensorSpec> const& specs, std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    for (TensorSpec const& spec : specs) {
      memory_.push_back(Buffer::host(spec.count, spec.dtype));
      views_.push_back(memory_.back().view());
      for (std::size_t i = 0; i < spec.count; ++i) {
        float const value = static_cast<float>(static_cast<double>(random() % 20001) / 10000.0 - 1.0);
        if (spec.dtype == DataType::f32) {
          static_cast<float*>(views_.back().data)[i] = value;
        } else {  // bf16: the upper half
          std::uint32_t bits = 0;
          std::memcpy(&bits, &value, sizeof bits);
          static_cast<std::uint16_t*>(views_.back().data)[i] = static_cast<std::uint16_t>(bits >> 16U);
        }
      }
    }
  }
  [[nodiscard]] std::vector<BufferView> const& views() const { return views_; }
  /// The first half of the tensors with `first`, the others with `second`.
  [[nodiscard]] std::vector<ParameterGroup> groups(OptimizerOptions const& first,
                                                   OptimizerOptions const& second) const {
    auto const middle = views_.begin() + static_cast<std::ptrdiff_t>(views_.size() / 2);
    return {{{views_.begin(), middle}, first}, {{middle, views_.end()}, second}};
  }
  void poison() const {
    for (BufferView const& view : views_) {
      if (view.count != 0) std::memset(view.data, 0xff, view.bytes());
    }
  }

 private:
  std::vector<Buffer> memory_;
  std::vector<BufferView> views_;
};

/// A gradient that depends on the parameter, so that any wrong bit stays: f32 or bf16, added or stored.
inline void write_gradient(BufferView gradient, BufferView parameter, int rank, std::size_t step, std::size_t tensor,
                           bool add = false) {
  for (std::size_t i = 0; i < gradient.count; ++i) {
    float const noise = gradient_value(rank, step, tensor, i);
    if (gradient.dtype == DataType::f32) {
      float& to = static_cast<float*>(gradient.data)[i];
      float const value = 0.1F * static_cast<float const*>(parameter.data)[i] + 0.05F * noise;
      to = add ? to + value : value;
    } else {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &noise, sizeof bits);
      static_cast<std::uint16_t*>(gradient.data)[i] = static_cast<std::uint16_t>(bits >> 16U);
    }
  }
}

inline std::vector<std::byte> bytes_of(std::size_t count, auto&& view_of) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    BufferView const view = view_of(i);
    auto const* const data = static_cast<std::byte const*>(view.data);
    bytes.insert(bytes.end(), data, data + view.bytes());
  }
  return bytes;
}

/// Of f32 values that may differ by rounding.
inline void expect_near(std::vector<std::byte> const& got, std::vector<std::byte> const& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t at = 0; at < got.size(); at += sizeof(float)) {
    float a = 0;
    float b = 0;
    std::memcpy(&a, got.data() + at, sizeof a);
    std::memcpy(&b, expected.data() + at, sizeof b);
    ASSERT_NEAR(a, b, tolerance * std::max(1.0F, std::abs(b))) << "at byte " << at;
  }
}

/// What varies between trainings that must end with the same bits.
struct Training {
  std::vector<TensorSpec> specs;
  OptimizerOptions first;
  OptimizerOptions second;
  OptimizerSettings settings{};
  std::size_t steps = 5;
  bool unused = false;     ///< some tensors get no gradient in some steps
  std::size_t passes = 1;  ///< per step, all but the last without communication

  [[nodiscard]] bool skips(std::size_t step, std::size_t tensor) const { return unused && (tensor + step) % 5 == 0; }
};

/// The bytes of all parameters after training replicas with a whole Optimizer each.
inline std::vector<std::byte> train_replicated(Communicator& world, Training const& t) {
  Parameters const parameters(t.specs);
  DataParallel ddp(world, parameters.views(), {.limits = {4000, 20000}, .stream = {}});
  Optimizer optimizer(parameters.groups(t.first, t.second), t.settings);
  for (std::size_t step = 0; step < t.steps; ++step) {
    auto const pass = [&](std::size_t number) {
      for (std::size_t const i : shuffled(t.specs.size(), 7)) {
        if (t.skips(step, i)) continue;
        write_gradient(ddp.gradient(i), ddp.parameter(i), world.rank(), step * t.passes + number, i, number > 0);
        ddp.mark_ready(i);
      }
      ddp.finish();
    };
    for (std::size_t number = 0; number + 1 < t.passes; ++number) ddp.no_sync([&] { pass(number); });
    pass(t.passes - 1);
    std::vector<BufferView> gradients;
    for (std::size_t i = 0; i < t.specs.size(); ++i) gradients.push_back(ddp.gradient(i));
    optimizer.step(gradients);
  }
  return bytes_of(t.specs.size(), [&](std::size_t i) { return ddp.parameter(i); });
}

/// Overwrites with NaN everything of parameter `i` that other ranks own.
inline void poison_others(ZeroOptimizer const& zero, std::size_t i) {
  BufferView const whole = zero.parameter(i);
  ShardRange const mine = zero.shard(i);
  if (whole.count == 0) return;
  std::size_t const end = mine.first + mine.count;
  std::memset(whole.data, 0xff, mine.first * size_of(whole.dtype));
  BufferView const behind = whole.slice(end, whole.count - end);
  std::memset(behind.data, 0xff, behind.bytes());
}

/// The same with a sharded one. `poison`: everything is overwritten right after its last legal use.
inline std::vector<std::byte> train_sharded(Communicator& world, Training const& t, ZeroOptions options,
                                            bool poison = false) {
  options.optimizer = t.settings;
  Parameters const parameters(t.specs);
  ZeroOptimizer zero(world, parameters.groups(t.first, t.second), options);
  parameters.poison();
  for (std::size_t step = 0; step < t.steps; ++step) {
    auto const pass = [&](std::size_t number) {
      for (std::size_t i = 0; i < t.specs.size(); ++i) zero.wait_parameter(i);
      for (std::size_t const i : shuffled(t.specs.size(), 7)) {
        if (t.skips(step, i)) continue;
        write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), step * t.passes + number, i, number > 0);
        zero.mark_ready(i);
      }
      bool const last = number + 1 == t.passes;
      bool const fixed = step > 0 || !options.buckets.rebuild;
      for (std::size_t i = 0; i < t.specs.size() && poison && last && fixed; ++i) poison_others(zero, i);
      zero.step();
      for (std::size_t i = 0; i < t.specs.size() && poison && last; ++i) {
        if (t.specs[i].count != 0) std::memset(zero.gradient(i).data, 0xff, zero.gradient(i).bytes());
      }
    };
    for (std::size_t number = 0; number + 1 < t.passes; ++number) zero.no_sync([&] { pass(number); });
    pass(t.passes - 1);
  }
  zero.wait_parameters();
  return bytes_of(t.specs.size(), [&](std::size_t i) { return zero.parameter(i); });
}

}  // namespace weft::test
