// Layers on the CPU against double precision and the arithmetic that they share with the GPU's, on every SIMD target.

#include "weft/cpu_layers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/math/gelu.hpp"
#include "kernels/math/philox.hpp"
#include "kernels/simd_targets.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

BufferView view(Floats& values) {
  return {values.data(), values.size(), DataType::f32};
}

void expect_near(Floats const& mine, std::vector<double> const& exact, char const* what) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(mine[i], exact[i], 2e-5 * std::max(1.0, std::fabs(exact[i]))) << what << " " << i;
  }
}

/// body(rows, width) on every target, at widths around and far from whole vectors.
template <typename Body>
void on_every_target(Body const& body) {
  for (auto const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const width : {1U, 7U, 16U, 33U, 1030U}) body(5, width);
  }
}

TEST(CpuLayers, LayerNorm) {
  on_every_target([](std::size_t rows, std::size_t width) {
    auto x = random_floats(rows * width, 1);
    auto w = random_floats(width, 2);
    auto b = random_floats(width, 3);
    auto dy = random_floats(rows * width, 4);
    Floats y(x.size()), dx(x.size()), mean(rows), rstd(rows), dw(width, 1), db(width, 2);
    cpu::layer_norm(view(y), view(mean), view(rstd), view(x), view(w), view(b), 1e-3F);
    cpu::layer_norm_gradient(view(dx), view(dw), view(db), view(dy), view(x), view(mean), view(rstd), view(w));
    std::vector<double> ys(x.size()), dxs(x.size()), dws(width, 1), dbs(width, 2);
    auto const n = static_cast<double>(width);
    for (std::size_t row = 0; row < rows; ++row) {
      auto const at = [&](Floats const& from, std::size_t i) { return static_cast<double>(from[row * width + i]); };
      double sum = 0;
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) sum += at(x, i);
      for (std::size_t i = 0; i < width; ++i) squares += (at(x, i) - sum / n) * (at(x, i) - sum / n);
      double const scale = 1 / std::sqrt(squares / n + 1e-3);
      double plain = 0;
      double with_x = 0;
      for (std::size_t i = 0; i < width; ++i) {
        double const x_hat = (at(x, i) - sum / n) * scale;
        ys[row * width + i] = x_hat * w[i] + b[i];
        dws[i] += at(dy, i) * x_hat;
        dbs[i] += at(dy, i);
        plain += at(dy, i) * w[i] / n;
        with_x += at(dy, i) * w[i] * x_hat / n;
      }
      for (std::size_t i = 0; i < width; ++i) {
        double const x_hat = (at(x, i) - sum / n) * scale;
        dxs[row * width + i] = scale * (at(dy, i) * w[i] - plain - x_hat * with_x);
      }
    }
    expect_near(y, ys, "y");
    expect_near(dx, dxs, "dx");
    expect_near(dw, dws, "dw");
    expect_near(db, dbs, "db");
  });
}

template <typename Function, typename Forward, typename Backward>
void check_activation(Forward const& forward, Backward const& backward) {
  on_every_target([&](std::size_t rows, std::size_t width) {
    auto x = random_floats(rows * width, 1);
    for (auto& value : x) value *= 4;
    auto b = random_floats(width, 2);
    auto dy = random_floats(rows * width, 3);
    Floats y(x.size()), dx(x.size()), db(width);
    forward(view(y), view(x), view(b));
    backward(view(dx), view(db), view(dy), view(x), view(b));
    std::vector<double> ys, dxs, dbs(width);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ys.push_back(Function::value(x[i] + b[i % width]));
      dxs.push_back(dy[i] * Function::slope(x[i] + b[i % width]));
      dbs[i % width] += dxs.back();
    }
    expect_near(y, ys, "y");
    expect_near(dx, dxs, "dx");
    expect_near(db, dbs, "db");
  });
}

TEST(CpuLayers, BiasGelu) {
  check_activation<kernels::Gelu>(cpu::bias_gelu, cpu::bias_gelu_gradient);
}

TEST(CpuLayers, GeluHasASlopeWhereverItHasAValue) {
  on_every_target([](std::size_t /*rows*/, std::size_t width) {
    Floats x(width), slopes(width), none(width), db(width), ones(width, 1.0F);
    for (std::size_t i = 0; i < width; ++i)
      x[i] = (i % 2 == 0 ? 1.0F : -1.0F) * std::pow(10.0F, 2.0F + static_cast<float>(i % 37));
    cpu::bias_gelu_gradient(view(slopes), view(db), view(ones), view(x), view(none));
    for (std::size_t i = 0; i < width; ++i) {
      EXPECT_EQ(kernels::Gelu::slope(x[i]), x[i] > 0 ? 1.0F : 0.0F) << x[i];
      EXPECT_EQ(slopes[i], x[i] > 0 ? 1.0F : 0.0F) << x[i];
    }
  });
}

TEST(CpuLayers, BiasQuickGelu) {
  check_activation<kernels::QuickGelu>(cpu::bias_quick_gelu, cpu::bias_quick_gelu_gradient);
}

/// By the definition, in double precision.
struct ExactGelu {
  static double value(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
  static double slope(double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  }
};

TEST(CpuLayers, BiasErfGelu) {
  check_activation<ExactGelu>(cpu::bias_erf_gelu, cpu::bias_erf_gelu_gradient);
}

TEST(CpuLayers, ErfGeluKeepsItsDigitsFarBelowZero) {
  on_every_target([](std::size_t /*rows*/, std::size_t width) {
    Floats x(width), y(width), none(width);
    for (std::size_t i = 0; i < width; ++i) {
      x[i] = -12.0F * static_cast<float>(i) / static_cast<float>(width);
      EXPECT_NEAR(kernels::ErfGelu::value(x[i]), ExactGelu::value(x[i]), 2e-5 * std::fabs(ExactGelu::value(x[i])));
    }
    cpu::bias_erf_gelu(view(y), view(x), view(none));
    for (std::size_t i = 0; i < width; ++i) {
      EXPECT_NEAR(y[i], ExactGelu::value(x[i]), 2e-5 * std::fabs(ExactGelu::value(x[i]))) << x[i];
    }
  });
}

TEST(CpuLayers, BiasDropoutAddDropsWhatAGpuWould) {
  cpu::Dropout const dropout{.p = 0.4, .seed = 0x123456789ABCDEFULL, .first = (std::uint64_t{1} << 34) + 3};
  on_every_target([&](std::size_t rows, std::size_t width) {
    auto x = random_floats(rows * width, 1);
    auto b = random_floats(width, 2);
    auto residual = random_floats(rows * width, 3);
    Floats y(x.size()), dx(x.size()), db(width, 1);
    cpu::bias_dropout_add(view(y), view(x), view(b), view(residual), dropout);
    cpu::bias_dropout_gradient(view(dx), view(db), view(x), dropout);
    std::vector<double> ys, dxs, dbs(width, 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto const element = dropout.first + i;
      auto const group = element / 4;
      auto const words = kernels::philox(
          {{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), 0, 0}}, dropout.seed);
      double const factor = words.word[element % 4] >= static_cast<std::uint32_t>(0.4 * 4294967296.0) ? 1 / 0.6 : 0;
      ys.push_back(residual[i] + (double{x[i]} + b[i % width]) * factor);
      dxs.push_back(x[i] * factor);
      dbs[i % width] += dxs.back();
    }
    expect_near(y, ys, "y");
    expect_near(dx, dxs, "dx");
    expect_near(db, dbs, "db");
  });
}

TEST(CpuLayers, WrongArgumentsAreNamed) {
  Floats x(12), b(4), odd(5);
  auto const message = [](auto const& call) {
    try {
      call();
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message([&] { cpu::bias_gelu(view(x), view(x), view(odd)); }).find("12 elements are no rows of 5"),
            std::string::npos);
  EXPECT_NE(message([&] { cpu::bias_gelu(view(odd), view(x), view(b)); }).find("y is 5 f32; it must be 12 f32"),
            std::string::npos);
  EXPECT_NE(message([&] { cpu::bias_dropout_add(view(x), view(x), view(b), view(x), {.p = 1}); }).find("p is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::test
