#include "weft/gradients.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "weft/error.hpp"

namespace weft::test {
namespace {

BufferView view(std::vector<float>& values) {
  return BufferView(std::span(values));
}

TEST(GradientNormTest, IsThatOfAllGradientsAsOneVector) {
  std::vector<float> a{3, 0};
  std::vector<float> b{-4};
  std::vector<float> empty;
  std::vector<BufferView> const gradients{view(a), view(b), view(empty)};
  EXPECT_DOUBLE_EQ(gradient_norm(gradients).norm, 5);
  EXPECT_DOUBLE_EQ(gradient_norm(gradients, NormType::inf).norm, 4);
  EXPECT_DOUBLE_EQ(gradient_norm(gradients, NormType::l2, 0.5F).norm, 2.5);
  EXPECT_TRUE(gradient_norm(gradients).finite);
  EXPECT_EQ(gradient_norm({}).norm, 0);
  b[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(gradient_norm(gradients).finite);
  EXPECT_FALSE(gradient_norm(gradients, NormType::inf).finite);
}

TEST(GradientNormTest, HoldsWhereSquaresExceedF32) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (std::size_t const count : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{70001}}) {
    for (float const value : {1e19F, 2e19F, 1e30F, kLargest}) {
      std::vector<float> values(count, -value);
      std::vector<float> small{3};
      auto const norm = gradient_norm(std::vector<BufferView>{view(values), view(small)});
      double const expected = std::sqrt(static_cast<double>(count)) * value;
      EXPECT_TRUE(norm.finite);
      EXPECT_NEAR(norm.norm / expected, 1, 1e-5) << count << " of " << value;
    }
  }
  std::vector<float> scaled(100, 1e30F);
  EXPECT_NEAR(gradient_norm(std::vector<BufferView>{view(scaled)}, NormType::l2, 1e5F).norm / 1e36, 1, 1e-5);
  EXPECT_FALSE(gradient_norm(std::vector<BufferView>{view(scaled)}, NormType::l2, 1e10F).finite);
}

TEST(ClipGradNormTest, HoldsWhereSquaresExceedF32) {
  std::vector<float> values(100, 1e30F);
  EXPECT_NEAR(clip_grad_norm(std::vector<BufferView>{view(values)}, 1).norm / 1e31, 1, 1e-5);
  for (float const value : values) EXPECT_NEAR(value, 0.1F, 1e-6);
}

TEST(ClipGradNormTest, ScalesWhatIsLongerAndLeavesWhatIsNot) {
  std::vector<float> a{3, 0};
  std::vector<float> b{-4};
  std::vector<BufferView> const gradients{view(a), view(b)};
  EXPECT_DOUBLE_EQ(clip_grad_norm(gradients, 10).norm, 5);
  EXPECT_EQ(a, (std::vector<float>{3, 0}));
  EXPECT_DOUBLE_EQ(clip_grad_norm(gradients, 2.5).norm, 5);
  EXPECT_NEAR(a[0], 1.5, 1e-6);
  EXPECT_NEAR(b[0], -2, 1e-6);
  EXPECT_NEAR(clip_grad_norm(gradients, 1, NormType::inf).norm, 2, 1e-6);
  EXPECT_NEAR(b[0], -1, 1e-6);
  a[1] = std::nanf("");
  EXPECT_FALSE(clip_grad_norm(gradients, 0.1).finite);
  EXPECT_NEAR(b[0], -1, 1e-6) << "what overflowed is left to be skipped";
  EXPECT_THROW(clip_grad_norm(gradients, 0), Error);
  EXPECT_THROW(clip_grad_norm(gradients, std::nan("")), Error);
}

TEST(ClipGradValueTest, KeepsEveryElementWithinTheLimit) {
  std::vector<float> a{-3, -0.5F, 0, 7};
  std::vector<BufferView> const gradients{view(a)};
  clip_grad_value(gradients, 1);
  EXPECT_EQ(a, (std::vector<float>{-1, -0.5F, 0, 1}));
  EXPECT_THROW(clip_grad_value(gradients, -1), Error);
}

TEST(UnscaleAndCheckTest, UnscalesAndRemembersOverflows) {
  std::vector<float> a{8, -4};
  std::vector<float> b{2};
  float found_inf = 0;
  std::vector<BufferView> const gradients{view(a), view(b)};
  unscale_and_check(gradients, 0.5F, found_inf);
  EXPECT_EQ(a, (std::vector<float>{4, -2}));
  EXPECT_EQ(b, (std::vector<float>{1}));
  EXPECT_EQ(found_inf, 0);
  b[0] = -std::numeric_limits<float>::infinity();
  unscale_and_check(gradients, 0.5F, found_inf);
  EXPECT_EQ(found_inf, 1);
  b[0] = 1;
  unscale_and_check(gradients, 0.5F, found_inf);
  EXPECT_EQ(found_inf, 1) << "an overflow is not forgotten";
}

TEST(GradientsTest, RefusesWhatItCannotMeasure) {
  std::vector<double> wide(3);
  std::vector<BufferView> const doubles{BufferView(std::span(wide))};
  EXPECT_THROW(static_cast<void>(gradient_norm(doubles)), Error);
  std::vector<BufferView> const null{BufferView(nullptr, 3, DataType::f32)};
  float found_inf = 0;
  EXPECT_THROW(unscale_and_check(null, 1, found_inf), Error);
}

}  // namespace
}  // namespace weft::test
