#include "weft/gradient_compression.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "kernels/cpu/optim/compress.hpp"
#include "weft/bucketer.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

double unit_roundoff(DataType wire) {
  return wire == DataType::bf16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -11);
}

double smallest_step(DataType wire) {
  return wire == DataType::bf16 ? 0.0 : std::ldexp(1.0, -24);
}

float widened(std::uint16_t bits, DataType wire) {
  return wire == DataType::bf16 ? to_float(BFloat16{bits}) : to_float(Half{bits});
}

std::uint16_t narrowed(float value, DataType wire) {
  return wire == DataType::bf16 ? to_bfloat16(value).bits : to_half(value).bits;
}

BucketerOptions compressed(CompressionOptions const& compression) {
  BucketerOptions options;
  options.limits = {2048, 8192};
  options.hook = compress_gradients(compression);
  return options;
}

/// Of many magnitudes, down to f16's subnormals.
float wide_value(int rank, std::size_t step, std::size_t tensor, std::size_t i) {
  return std::ldexp(gradient_value(rank, step, tensor, i) / 16, -static_cast<int>(i % 24));
}

class Compression : public testing::TestWithParam<int> {};

TEST_P(Compression, ErrorsStayWithinTheBoundAndRanksAgree) {
  for (DataType const wire : {DataType::bf16, DataType::f16}) {
    run_thread_ranks(GetParam(), [&](Communicator& world) {
      Bucketer bucketer(world, model(13, 5), compressed({wire, false}));
      double worst = 0;
      for (std::size_t step = 0; step < 3; ++step) {
        for (std::size_t const t : shuffled(13, step + 10 * static_cast<std::size_t>(world.rank()))) {
          std::span<float> const out = floats(bucketer.gradient(t));
          for (std::size_t i = 0; i < out.size(); ++i) out[i] = wide_value(world.rank(), step, t, i);
          bucketer.mark_ready(t);
        }
        bucketer.finish();
        for (std::size_t t = 0; t < 13; ++t) {
          std::span<float> const got = floats(bucketer.gradient(t));
          for (std::size_t i = 0; i < got.size(); ++i) {
            double sum = 0;
            double magnitudes = 0;
            for (int r = 0; r < world.size(); ++r) {
              sum += wide_value(r, step, t, i);
              magnitudes += std::abs(wide_value(r, step, t, i));
            }
            double const u = unit_roundoff(wire);
            double const bound = u * magnitudes / world.size() + u * std::abs(sum / world.size()) * (1 + u) +
                                 smallest_step(wire) + 1e-7 * magnitudes;
            ASSERT_LE(std::abs(got[i] - sum / world.size()), bound) << "tensor " << t << " element " << i;
            if (bound > 0) worst = std::max(worst, std::abs(got[i] - sum / world.size()) / bound);
          }
        }
        std::vector<float> const mine = all_gradients(bucketer);
        std::vector<float> zeros = mine;
        world.broadcast(BufferView(std::span(zeros)), 0).wait();
        ASSERT_TRUE(same_bits(mine, zeros));
      }
      EXPECT_GT(worst, 0.2) << "the bound says nothing";
    });
  }
}

// What arrives is the average of rounded gradients, rounded once: nothing else happens to them.
TEST_P(Compression, BitsAreThoseOfRoundedGradients) {
  for (DataType const wire : {DataType::bf16, DataType::f16}) {
    run_thread_ranks(GetParam(), [&](Communicator& world) {
      for (BucketCollective const collective : {BucketCollective::all_reduce, BucketCollective::reduce_scatter}) {
        BucketerOptions options = compressed({wire, false});
        options.collective = collective;
        Bucketer bucketer(world, model(13, 5), options);
        std::size_t compared = 0;
        for (std::size_t step = 0; step < 2; ++step) {
          for (std::size_t t = 13; t-- > 0;) {
            write_gradient(bucketer, world.rank(), step, t);
            bucketer.mark_ready(t);
          }
          bucketer.finish();
        }
        std::size_t const shards =
            collective == BucketCollective::all_reduce ? 1 : static_cast<std::size_t>(world.size());
        for (Bucket const& bucket : bucketer.plan().buckets) {
          std::size_t const part = bucket.count / shards;
          std::size_t const first = shards == 1 ? 0 : part * static_cast<std::size_t>(world.rank());
          for (BucketSlot const& slot : bucket.slots) {
            for (std::size_t i = 0; i < slot.count; ++i) {
              if (slot.offset + i < first || slot.offset + i >= first + part) continue;
              float sum = 0;
              for (int r = 0; r < world.size(); ++r) {
                sum += widened(narrowed(gradient_value(r, 1, slot.tensor, i), wire), wire);
              }
              float const expected = widened(narrowed(sum / static_cast<float>(world.size()), wire), wire);
              ASSERT_NEAR(floats(bucketer.gradient(slot.tensor))[i], expected,
                          2 * unit_roundoff(wire) * std::abs(expected) * (world.size() == 3 ? 1 : 0));
              ++compared;
            }
          }
        }
        EXPECT_GT(compared, 3000U);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Compression, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

// With feedback, what has arrived over many steps is what was to be sent, but for one step's rounding.
TEST(GradientCompression, FeedbackLosesNothingOverManySteps) {
  run_thread_ranks(2, [](Communicator& world) {
    constexpr std::size_t kSteps = 200;
    double drift[2] = {0, 0};
    for (bool const feedback : {false, true}) {
      Bucketer bucketer(world, std::vector<TensorSpec>{{40}, {70}}, compressed({DataType::bf16, feedback}));
      std::vector<double> arrived(110, 0);
      std::vector<double> meant(110, 0);
      for (std::size_t step = 0; step < kSteps; ++step) {
        for (std::size_t t = 0; t < 2; ++t) {
          std::span<float> const out = floats(bucketer.gradient(t));
          // The same on both ranks: the average of rounded values is one of them, and is not rounded again.
          for (std::size_t i = 0; i < out.size(); ++i) out[i] = 1.0F + 0.001F * static_cast<float>(i + 1);
          bucketer.mark_ready(t);
        }
        bucketer.finish();
        for (std::size_t t = 0; t < 2; ++t) {
          for (std::size_t i = 0; i < floats(bucketer.gradient(t)).size(); ++i) {
            arrived[t * 40 + i] += floats(bucketer.gradient(t))[i];
            meant[t * 40 + i] += 1.0F + 0.001F * static_cast<float>(i + 1);
          }
        }
      }
      for (std::size_t i = 0; i < 110; ++i) {
        drift[feedback ? 1 : 0] = std::max(drift[feedback ? 1 : 0], std::abs(arrived[i] - meant[i]));
      }
    }
    EXPECT_GT(drift[0], 0.1) << "without feedback rounding adds up";
    EXPECT_LT(drift[1], 0.01) << "with it one step's rounding is left";
  });
}

// Gradient descent to the minimum of Σ h·(x − x*)²/2 whose optimum differs between ranks: gradients at the common
// optimum cancel, but not when they are rounded.
double distance_after(bool feedback, bool compress) {
  double distance = 0;
  run_thread_ranks(2, [&](Communicator& world) {
    constexpr std::size_t kCount = 64;
    BucketerOptions options;
    if (compress) options = compressed({DataType::bf16, feedback});
    Bucketer bucketer(world, std::vector<TensorSpec>{{kCount}}, options);
    std::vector<float> x(kCount, 0.0F);
    auto const goal = [](int rank, std::size_t i) {
      double const common = 0.37 + 0.01 * static_cast<double>(i);
      return common + (rank == 0 ? 1.0 : -1.0) * (30.0 + 0.123 * static_cast<double>(i));
    };
    // The last steps' average is what such a run has to offer.
    std::vector<double> mean(kCount, 0);
    for (int step = 0; step < 400; ++step) {
      for (std::size_t i = 0; i < kCount; ++i) {
        floats(bucketer.gradient(0))[i] = static_cast<float>(x[i] - goal(world.rank(), i));
      }
      bucketer.mark_ready(0);
      bucketer.finish();
      for (std::size_t i = 0; i < kCount; ++i) {
        x[i] -= 0.05F * floats(bucketer.gradient(0))[i];
        if (step >= 200) mean[i] += x[i] / 200;
      }
    }
    if (world.rank() != 0) return;
    for (std::size_t i = 0; i < kCount; ++i) {
      distance = std::max(distance, std::abs(mean[i] - (goal(0, i) + goal(1, i)) / 2));
    }
  });
  return distance;
}

TEST(GradientCompression, FeedbackConvergesOnAQuadratic) {
  double const exact = distance_after(false, false);
  double const rounded = distance_after(false, true);
  double const with_feedback = distance_after(true, true);
  EXPECT_LT(exact, 1e-4);
  EXPECT_GT(rounded, 0.01) << "rounding does no harm here: the test shows nothing";
  EXPECT_LT(with_feedback, rounded / 10);
  EXPECT_LT(with_feedback, 2e-3);
}

TEST(GradientCompression, OverflowsArriveAndLeaveNothingBehind) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>{{5}}, compressed({DataType::f16, true}));
    for (int step = 0; step < 3; ++step) {
      std::span<float> const out = floats(bucketer.gradient(0));
      bool const bad = step == 0 && world.rank() == 1;
      out[0] = bad ? 1e30F : 1.0F;  // beyond f16
      out[1] = bad ? std::numeric_limits<float>::infinity() : 1.0F;
      out[2] = bad ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
      out[3] = 1.0F;
      out[4] = bad ? -70000.0F : 1.0F;
      bucketer.mark_ready(0);
      bucketer.finish();
      std::span<float> const got = floats(bucketer.gradient(0));
      EXPECT_EQ(got[3], 1.0F);
      for (std::size_t const i : {0U, 1U, 2U, 4U}) {
        EXPECT_EQ(std::isfinite(got[i]), step != 0) << i;
        if (step != 0) {
          EXPECT_EQ(got[i], 1.0F);
        }
      }
    }
  });
}

// What no rank has a gradient of keeps its contents, so what arrives there counts for nothing, and must take nothing.
TEST(GradientCompression, ResidualsOfUnusedTensorsStay) {
  run_thread_ranks(2, [](Communicator& world) {
    GradientCompressor compressor({DataType::bf16, true});
    BucketerOptions options;
    options.hook = compressor.hook();
    options.unused = UnusedGradients::find;
    Bucketer bucketer(world, std::vector<TensorSpec>{{5}, {5}}, options);
    auto const step = [&](bool both) {
      for (std::size_t t = 0; t < (both ? 2U : 1U); ++t) {
        for (float& one : floats(bucketer.gradient(t))) one = 1.001F;
        bucketer.mark_ready(t);
      }
      bucketer.finish();
    };
    step(true);
    std::vector<float> const left(compressor.residual(1).begin(), compressor.residual(1).end());
    ASSERT_NE(left.at(0), 0);
    step(false);
    EXPECT_TRUE(std::ranges::equal(compressor.residual(1), left));
    EXPECT_FALSE(std::ranges::equal(compressor.residual(0), left)) << "which was sent";
  });
}

TEST(GradientCompression, OtherTypesTravelAsTheyAre) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>{{10, DataType::f64}, {10}}, compressed({DataType::bf16, true}));
    double const value = 1.0 / 3;
    for (std::size_t i = 0; i < 10; ++i) static_cast<double*>(bucketer.gradient(0).data)[i] = value;
    for (float& one : floats(bucketer.gradient(1))) one = static_cast<float>(value);
    bucketer.mark_ready(0);
    bucketer.mark_ready(1);
    bucketer.finish();
    EXPECT_EQ(static_cast<double*>(bucketer.gradient(0).data)[3], value);
    EXPECT_EQ(floats(bucketer.gradient(1))[3], to_float(to_bfloat16(static_cast<float>(value))));
  });
}

// The only rank's part is the whole bucket, and yet lies elsewhere.
TEST(GradientCompression, OneRanksPartsArriveWhereBucketsComeAndGo) {
  run_thread_ranks(1, [](Communicator& world) {
    BucketerOptions options = compressed({DataType::bf16, false});
    options.collective = BucketCollective::reduce_scatter_and_release;
    options.come_and_go = true;
    Bucketer bucketer(world, std::vector<TensorSpec>{{10, DataType::f64}, {10}}, options);
    for (std::size_t i = 0; i < 10; ++i) static_cast<double*>(bucketer.gradient(0).data)[i] = 0.25;
    std::ranges::fill(floats(bucketer.gradient(1)), 0.25F);
    bucketer.mark_ready(0);
    bucketer.mark_ready(1);
    bucketer.finish();
    ASSERT_EQ(bucketer.plan().buckets.size(), 2U);
    for (std::size_t b = 0; b < 2; ++b) {
      BufferView const part = bucketer.shard(b);
      EXPECT_EQ(part.dtype == DataType::f64 ? static_cast<double*>(part.data)[3] : floats(part)[3], 0.25) << b;
    }
  });
}

TEST(GradientCompression, OnlySixteenBits) {
  EXPECT_THROW((void)compress_gradients({DataType::f32, false}), Error);
  EXPECT_THROW((void)compress_gradients({DataType::f8e5m2, false}), Error);
}

TEST(CompressKernel, FollowsAScalarReferenceForAnyLength) {
  std::mt19937_64 random(3);
  for (DataType const wire : {DataType::bf16, DataType::f16}) {
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<float> gradient(count);
      std::vector<float> residual(count + 1, 7.0F);
      for (std::size_t i = 0; i < count; ++i) {
        gradient[i] = std::ldexp(static_cast<float>(random() % 20001) - 10000.0F, static_cast<int>(random() % 40) - 30);
        residual[i] = gradient[i] * 1e-3F;
      }
      std::vector<float> expected_residual = residual;
      std::vector<std::uint16_t> got(count + 1, 0x1234);
      weft::kernels::compress_with_feedback(gradient.data(), residual.data(), got.data(), wire, count);
      for (std::size_t i = 0; i < count; ++i) {
        float const whole = gradient[i] + expected_residual[i];
        ASSERT_EQ(got[i], narrowed(whole, wire)) << i << " of " << count;
        float const rest = whole - widened(got[i], wire);
        ASSERT_EQ(residual[i], std::isfinite(rest) ? rest : 0.0F);
      }
      EXPECT_EQ(got[count], 0x1234);
      EXPECT_EQ(residual[count], 7.0F);
    }
  }
}

}  // namespace
}  // namespace weft::test
