// The trainer's kernels against formulas in double; backward against differences of forward's formula.

#include <cmath>

#include "cuda/kernels/machines.hpp"
#include "kernels/cuda/model/bias.hpp"
#include "kernels/cuda/model/bias_gelu.hpp"
#include "kernels/cuda/model/causal_softmax.hpp"
#include "kernels/cuda/model/columns.hpp"
#include "kernels/cuda/model/cross_entropy.hpp"
#include "kernels/cuda/model/dropout.hpp"
#include "kernels/cuda/model/embedding.hpp"
#include "kernels/cuda/model/layer_norm.hpp"

namespace weft::test {
namespace {

namespace kc = kernels::cuda;

struct Shape {
  std::size_t rows, width;
};
// Narrow rows aligned for accesses of 16 bytes, of 8 and not; more rows than a slab, more than registers hold.
constexpr Shape kShapes[] = {{1, 1},    {3, 4},    {5, 3},     {2, 64},   {3, 20},   {130, 37}, {300, 8},
                             {66, 515}, {3, 1030}, {34, 2055}, {2, 5003}, {2, 8192}, {3, 8201}};
constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::f16};

/// What rounding to a type may change, relative to values of about 1.
double rounding(DataType type) {
  return type == DataType::f32 ? 3e-6 : (type == DataType::bf16 ? 8e-3 : 1e-3);
}

template <typename Machine>
class ModelKernelsTest : public OnMachine<Machine> {
 protected:
  using Tensor = GuardedTensor<Machine>;

  void prepare(Shape const& shape, DataType type) {
    machine_.emplace(this->make());
    shape_ = shape;
    type_ = type;
  }
  [[nodiscard]] std::size_t count() const { return shape_.rows * shape_.width; }
  /// Random values as they are stored.
  std::vector<float> draw(std::size_t n, float scale = 1) { return as_stored(random_floats(n, random_, scale), type_); }
  Tensor tensor(std::vector<float> const& values) { return {*machine_, values, type_}; }
  Tensor floats(std::vector<float> const& values) { return {*machine_, values, DataType::f32}; }
  static kc::TensorPointer pointer(Tensor const& tensor) { return {tensor.view().data, tensor.view().dtype}; }
  static float* data(Tensor const& tensor) { return static_cast<float*>(tensor.view().data); }

  template <typename Source>
  void sum_columns(Source const& source, std::vector<kc::TensorPointer> const& outputs, float keep) {
    using Body = kc::ColumnSumsBody<Source>;
    auto const width = static_cast<std::uint32_t>(shape_.width);
    auto const grid = Body::grid(shape_.rows, width);
    Buffer const parts = machine_->allocate(grid.slabs * outputs.size() * width * sizeof(float));
    auto* const memory = static_cast<float*>(parts.data());
    machine_->launch(Body{source, shape_.rows, width, memory}, grid.blocks(), nullptr);
    kc::FinishColumnsBody finish{memory, grid.slabs, static_cast<std::uint32_t>(outputs.size()), width, {}, keep};
    for (std::size_t i = 0; i < outputs.size(); ++i) finish.out[i] = outputs[i];
    machine_->launch(finish, finish.blocks(), nullptr);
  }
  void expect(Tensor const& got, std::vector<double> const& exact, double tolerance, char const* what) {
    std::vector<float> const expected(exact.begin(), exact.end());
    ASSERT_TRUE(near(got.get(), expected, tolerance))
        << what << ", " << shape_.rows << "x" << shape_.width << " of " << to_string(type_);
    ASSERT_TRUE(got.guards_hold()) << what;
  }

  void expect_same(Tensor const& got, Tensor const& other, char const* what) {
    ASSERT_EQ(got.get(), other.get()) << what << ", " << shape_.rows << "x" << shape_.width << " of "
                                      << to_string(type_);
    ASSERT_TRUE(got.guards_hold()) << what;
  }

  std::optional<Machine> machine_;
  Shape shape_{};
  DataType type_ = DataType::f32;
  std::mt19937_64 random_{5};
};
TYPED_TEST_SUITE(ModelKernelsTest, Machines, MachineNames);

TYPED_TEST(ModelKernelsTest, LayerNormAndItsGradients) {
  for (auto const& shape : kShapes) {
    for (auto const type : kTypes) {
      this->prepare(shape, type);
      auto const [rows, width] = shape;
      auto const x = this->draw(this->count());
      auto const dy = this->draw(this->count());
      auto const w = this->draw(width);
      auto const b = this->draw(width);
      auto const old = this->draw(this->count());
      auto const n = static_cast<double>(width);
      std::vector<double> y(x.size()), dx(x.size()), dw(width), db(width);
      for (std::size_t row = 0; row < rows; ++row) {
        auto const* const in = &x[row * width];
        auto const* const g = &dy[row * width];
        double mean = 0, variance = 0, plain = 0, with_x = 0;
        for (std::size_t i = 0; i < width; ++i) mean += in[i] / n;
        for (std::size_t i = 0; i < width; ++i) variance += (in[i] - mean) * (in[i] - mean) / n;
        double const rstd = 1 / std::sqrt(variance + 1e-5);
        for (std::size_t i = 0; i < width; ++i) {
          double const x_hat = (in[i] - mean) * rstd;
          y[row * width + i] = x_hat * w[i] + b[i];
          plain += g[i] * w[i] / n;
          with_x += g[i] * w[i] * x_hat / n;
          dw[i] += g[i] * x_hat;
          db[i] += g[i];
        }
        for (std::size_t i = 0; i < width; ++i) {
          dx[row * width + i] = old[row * width + i] + rstd * (g[i] * w[i] - plain - (in[i] - mean) * rstd * with_x);
        }
      }
      for (std::size_t i = 0; i < width; ++i) {
        dw[i] += 0.5 * w[i];
        db[i] += 0.5 * b[i];
      }
      auto const width32 = static_cast<std::uint32_t>(width);
      auto tx = this->tensor(x), tdy = this->tensor(dy), tw = this->tensor(w), tb = this->tensor(b);
      auto ty = this->tensor(x), tdx = this->tensor(old), tdw = this->floats(w), tdb = this->floats(b);
      auto mean = this->floats(std::vector<float>(rows)), rstd = this->floats(std::vector<float>(rows));
      this->machine_->launch(kc::LayerNormBody{this->pointer(ty), this->pointer(tx), this->pointer(tw),
                                               this->pointer(tb), this->data(mean), this->data(rstd), width32, 1e-5F},
                             rows, nullptr);
      this->machine_->launch(
          kc::LayerNormInputBody{this->pointer(tdx), this->pointer(tdy), this->pointer(tx), this->pointer(tw),
                                 this->data(mean), this->data(rstd), width32, true},
          rows, nullptr);
      this->sum_columns(kc::LayerNormWeights{this->pointer(tdy), this->pointer(tx), this->data(mean), this->data(rstd)},
                        {this->pointer(tdw), this->pointer(tdb)}, 0.5F);
      if (width <= kc::kMostLayerNormGradientColumns) {
        auto fdx = this->tensor(old), fdw = this->floats(w), fdb = this->floats(b);
        auto const slabs = static_cast<std::uint32_t>((rows + kc::kSlabRows - 1) / kc::kSlabRows);
        auto parts = this->floats(std::vector<float>(std::size_t{slabs} * 2 * width));
        kc::launch_layer_norm_gradient({this->pointer(fdx), this->pointer(tdy), this->pointer(tx), this->pointer(tw),
                                        this->data(mean), this->data(rstd), width32, true},
                                       rows, this->data(parts), [&](auto const& body, std::size_t blocks) {
                                         this->machine_->launch(body, blocks, nullptr);
                                       });
        kc::FinishColumnsBody const finish{
            this->data(parts), slabs, 2, width32, {this->pointer(fdw), this->pointer(fdb)}, 0.5F};
        this->machine_->launch(finish, finish.blocks(), nullptr);
        this->expect(fdx, dx, rounding(type) * (width == 1 ? 320 : 4), "dx in one pass");
        this->expect_same(fdw, tdw, "dw");
        this->expect_same(fdb, tdb, "db");
      }
      // A row of one element has no variance: rstd is √100000 and multiplies roundings.
      double const tolerance = rounding(type) * (width == 1 ? 320 : 4);
      this->expect(ty, y, tolerance, "y");
      this->expect(tdx, dx, tolerance, "dx");
      this->expect(tdw, dw, 1e-4, "dw");
      this->expect(tdb, db, 1e-5, "db");
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(ModelKernelsTest, LayerNormWithoutWeights) {
  for (auto const& shape : kShapes) {
    this->prepare(shape, DataType::bf16);
    auto const width = static_cast<std::uint32_t>(shape.width);
    auto const x = this->tensor(this->draw(this->count())), dy = this->tensor(this->draw(this->count()));
    auto const ones = this->floats(std::vector<float>(width, 1)), zeros = this->floats(std::vector<float>(width));
    auto const mean = this->floats(std::vector<float>(shape.rows)), rstd = this->floats(std::vector<float>(shape.rows));
    auto const run = [&](kc::TensorPointer const& w, kc::TensorPointer const& b) {
      auto const y = this->tensor(x.get()), dx = this->tensor(x.get());
      this->machine_->launch(
          kc::LayerNormBody{this->pointer(y), this->pointer(x), w, b, this->data(mean), this->data(rstd), width, 1e-3F},
          shape.rows, nullptr);
      this->machine_->launch(kc::LayerNormInputBody{this->pointer(dx), this->pointer(dy), this->pointer(x), w,
                                                    this->data(mean), this->data(rstd), width},
                             shape.rows, nullptr);
      return std::pair(y.get(), dx.get());
    };
    EXPECT_EQ(run({}, {}), run(this->pointer(ones), this->pointer(zeros))) << shape.rows << "x" << shape.width;
  }
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double quick_gelu(double x) {
  return x / (1 + std::exp(-1.702 * x));
}
double erf_gelu(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

TYPED_TEST(ModelKernelsTest, BiasGeluAndItsGradient) {
  auto const run = [&](auto activation, auto const& exact) {
    using Activation = decltype(activation);
    for (auto const& shape : kShapes) {
      for (auto const type : kTypes) {
        this->prepare(shape, type);
        auto const width = static_cast<std::uint32_t>(shape.width);
        auto const x = this->draw(this->count(), 3);
        auto const dy = this->draw(this->count());
        auto const b = this->draw(width);
        std::vector<double> y(x.size()), dx(x.size()), db(width);
        for (std::size_t i = 0; i < x.size(); ++i) {
          double const at = static_cast<double>(x[i]) + b[i % width];
          y[i] = exact(at);
          dx[i] = dy[i] * (exact(at + 1e-5) - exact(at - 1e-5)) / 2e-5;
          db[i % width] += dx[i];
        }
        auto tx = this->tensor(x), tdy = this->tensor(dy), tb = this->tensor(b);
        auto ty = this->tensor(x), tdb = this->floats(std::vector<float>(width, NAN));
        this->machine_->launch(
            kc::BiasActivationBody<Activation>{this->pointer(ty), this->pointer(tx), this->pointer(tb), width},
            shape.rows, nullptr);
        // In place: dx where dy was.
        this->sum_columns(kc::BiasActivationGradient<Activation>{this->pointer(tdy), this->pointer(tdy),
                                                                 this->pointer(tx), this->pointer(tb)},
                          {this->pointer(tdb)}, 0);
        this->expect(ty, y, rounding(type), "y");
        this->expect(tdy, dx, rounding(type), "dx");
        this->expect(tdb, db, 2e-5, "db");
        if (this->HasFatalFailure()) return;
      }
    }
  };
  run(kernels::Gelu(), gelu);
  run(kernels::QuickGelu(), quick_gelu);
  run(kernels::ErfGelu(), erf_gelu);
}

TYPED_TEST(ModelKernelsTest, DropoutKeepsTheRightShareAndBackwardKnowsWhich) {
  for (auto const& shape : kShapes) {
    for (auto const type : kTypes) {
      this->prepare(shape, type);
      auto const width = static_cast<std::uint32_t>(shape.width);
      auto const x = this->draw(this->count());
      auto const residual = this->draw(this->count());
      auto const dy = this->draw(this->count());
      auto const b = this->draw(width);
      auto tx = this->tensor(x), tr = this->tensor(residual), tb = this->tensor(b), ty = this->tensor(x);
      auto tdy = this->tensor(dy), tdx = this->tensor(x), tdb = this->floats(std::vector<float>(width));
      auto const dropout = kc::Dropout::with(0.25, 99, 3, nullptr);
      this->machine_->launch(kc::BiasDropoutAddBody{this->pointer(ty), this->pointer(tx), this->pointer(tb),
                                                    this->pointer(tr), dropout, width},
                             shape.rows, nullptr);
      this->sum_columns(kc::BiasDropoutGradient{this->pointer(tdx), this->pointer(tdy), dropout}, {this->pointer(tdb)},
                        0);
      std::vector<double> y(x.size()), dx(x.size()), db(width);
      std::size_t kept = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        // The documented words, one element at a time.
        auto const words = kernels::philox({{static_cast<std::uint32_t>(i / 4), 0, 3, 0}}, 99);
        double const factor = words.word[i % 4] >= 0x40000000U ? 1 / 0.75 : 0;
        kept += factor != 0 ? 1 : 0;
        y[i] = residual[i] + factor * (static_cast<double>(x[i]) + b[i % width]);
        dx[i] = factor * dy[i];
        db[i % width] += dx[i];
      }
      if (x.size() > 4000) {
        EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(x.size()), 0.75, 0.03);
      }
      this->expect(ty, y, rounding(type), "y");
      this->expect(tdx, dx, rounding(type), "dx");
      this->expect(tdb, db, 1e-5, "db");
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(ModelKernelsTest, DropoutDiffersBetweenStepsAndCalls) {
  this->prepare({8, 64}, DataType::f32);
  auto const draw = [&](std::uint32_t call, std::uint32_t step) {
    auto const machine = *this->machine_;
    Buffer const counter = machine.allocate(sizeof step);
    machine.write(counter.data(), &step, sizeof step);
    auto ones = this->floats(std::vector<float>(512, 1));
    auto zeros = this->floats(std::vector<float>(512, 0));
    auto const dropout = kc::Dropout::with(0.5, 1, call, static_cast<std::uint32_t const*>(counter.data()));
    machine.launch(
        kc::BiasDropoutAddBody{this->pointer(ones), this->pointer(ones), {}, this->pointer(zeros), dropout, 64}, 8,
        nullptr);
    return ones.get();
  };
  EXPECT_EQ(draw(0, 0), draw(0, 0));
  EXPECT_NE(draw(0, 0), draw(0, 1));
  EXPECT_NE(draw(0, 0), draw(1, 0));
}

TYPED_TEST(ModelKernelsTest, DropoutReadsItsSeedWhenItRuns) {
  this->prepare({5, 37}, DataType::f32);
  auto const machine = *this->machine_;
  std::uint64_t seed = 0x123456789ABCDEF;
  Buffer const memory = machine.allocate(sizeof seed);
  machine.write(memory.data(), &seed, sizeof seed);
  auto const draw = [&](kc::Dropout const& dropout) {
    auto ones = this->floats(std::vector<float>(this->count(), 1));
    auto zeros = this->floats(std::vector<float>(this->count(), 0));
    machine.launch(
        kc::BiasDropoutAddBody{this->pointer(ones), this->pointer(ones), {}, this->pointer(zeros), dropout, 37}, 5,
        nullptr);
    return ones.get();
  };
  auto there = kc::Dropout::with(0.5, 1, 0, nullptr);
  there.seed_at = static_cast<std::uint64_t const*>(memory.data());
  EXPECT_EQ(draw(there), draw(kc::Dropout::with(0.5, seed, 0, nullptr)));
  machine.write(memory.data(), &(seed = 2), sizeof seed);
  EXPECT_EQ(draw(there), draw(kc::Dropout::with(0.5, seed, 0, nullptr)));
}

TYPED_TEST(ModelKernelsTest, CrossEntropyAndItsGradient) {
  for (auto const& shape : kShapes) {
    for (auto const type : kTypes) {
      this->prepare(shape, type);
      auto const [rows, vocabulary] = shape;
      auto const logits = this->draw(this->count(), 20);
      std::vector<std::int32_t> targets(rows);
      for (std::size_t row = 0; row < rows; ++row) {
        targets[row] = row % 5 == 3 ? -100 : static_cast<std::int32_t>(this->random_() % vocabulary);
      }
      double loss = 0, counted = 0;
      std::vector<double> gradient(logits.size());
      for (std::size_t row = 0; row < rows; ++row) {
        if (targets[row] < 0) continue;
        auto const* const in = &logits[row * vocabulary];
        double const largest = *std::max_element(in, in + vocabulary);
        double sum = 0;
        for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(in[i] - largest);
        loss += largest + std::log(sum) - in[targets[row]];
        ++counted;
        for (std::size_t i = 0; i < vocabulary; ++i) {
          gradient[row * vocabulary + i] = 64 * std::exp(in[i] - largest) / sum;
        }
        gradient[row * vocabulary + static_cast<std::size_t>(targets[row])] -= 64;
      }
      for (double& one : gradient) one /= counted;
      auto const machine = *this->machine_;
      auto tl = this->tensor(logits);
      Buffer const ids = cuda::upload(machine, targets);
      auto const* const id = static_cast<std::int32_t const*>(ids.data());
      auto losses = this->floats(std::vector<float>(rows)), log_sums = this->floats(std::vector<float>(rows));
      auto result = this->floats({0, 0});
      auto const width = static_cast<std::uint32_t>(vocabulary);
      machine.launch(kc::CrossEntropyBody{this->pointer(tl), id, width, this->data(losses), this->data(log_sums)}, rows,
                     nullptr);
      machine.launch(kc::MeanLossBody{this->data(losses), id, static_cast<std::uint32_t>(rows), this->data(result),
                                      this->data(result) + 1},
                     1, nullptr);
      machine.launch(kc::CrossEntropyGradientBody{this->pointer(tl),
                                                  this->pointer(tl),
                                                  id,
                                                  this->data(log_sums),
                                                  this->data(result) + 1,
                                                  {64, nullptr},
                                                  width},
                     rows, nullptr);
      EXPECT_NEAR(result.get()[0], loss / counted, 1e-5 * (1 + loss / counted));
      EXPECT_FLOAT_EQ(result.get()[1], static_cast<float>(1 / counted));
      this->expect(tl, gradient, std::max(rounding(type), 3e-5), "gradient");
      if (this->HasFatalFailure()) return;
    }
  }
}

// Masked logits are −∞, wherever a thread's share begins with them; what is no number makes the loss none.
TYPED_TEST(ModelKernelsTest, CrossEntropyOfLogitsThatAreNotFinite) {
  constexpr std::uint32_t kVocabulary = 5003;
  this->prepare({6, kVocabulary}, DataType::f32);
  auto logits = this->draw(this->count(), 20);
  auto const row = [&](std::size_t index) { return &logits[index * kVocabulary]; };
  auto const target = std::size_t{4097};
  std::fill_n(row(0), 4000, -INFINITY);
  for (std::size_t i = 0; i < kVocabulary; ++i) row(1)[i] = i == target ? 3 : -INFINITY;
  row(2)[17] = NAN;
  std::fill_n(row(3), kVocabulary, -INFINITY);
  row(3)[kVocabulary - 1] = NAN;
  row(4)[2500] = INFINITY;
  std::fill_n(row(5), 4096, -INFINITY);
  row(5)[8] = NAN;
  auto const machine = *this->machine_;
  auto tl = this->tensor(logits);
  Buffer const ids = cuda::upload(machine, std::vector<std::int32_t>(6, static_cast<std::int32_t>(target)));
  auto losses = this->floats(std::vector<float>(6)), log_sums = this->floats(std::vector<float>(6));
  machine.launch(kc::CrossEntropyBody{this->pointer(tl), static_cast<std::int32_t const*>(ids.data()), kVocabulary,
                                      this->data(losses), this->data(log_sums)},
                 6, nullptr);
  auto const got = losses.get();
  double sum = 0;
  for (std::size_t i = 4000; i < kVocabulary; ++i) sum += std::exp(row(0)[i] - row(0)[target]);
  EXPECT_NEAR(got[0], std::log(sum), 1e-5 * (1 + std::log(sum)));
  EXPECT_EQ(got[1], 0.0F);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_TRUE(std::isnan(got[i])) << "row " << i << ": " << got[i];
}

TYPED_TEST(ModelKernelsTest, BiasesAreAddedAndTheirGradientsSummed) {
  for (auto const& shape : kShapes) {
    for (auto const type : kTypes) {
      this->prepare(shape, type);
      auto const width = static_cast<std::uint32_t>(shape.width);
      auto const x = this->draw(this->count());
      auto const residual = this->draw(this->count());
      auto const b = this->draw(width);
      auto const old = this->draw(width);
      std::vector<double> sum(x.size()), all(x.size()), db(width);
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum[i] = static_cast<double>(x[i]) + b[i % width];
        all[i] = sum[i] + residual[i];
        db[i % width] += x[i];
      }
      for (std::size_t i = 0; i < width; ++i) db[i] += 0.5 * old[i];
      auto tx = this->tensor(x), tb = this->tensor(b), tr = this->tensor(residual), ty = this->tensor(x);
      auto tc = this->floats(x), tdb = this->floats(old);
      this->machine_->launch(
          kc::BiasActivationBody<kc::Identity>{this->pointer(tc), this->pointer(tx), this->pointer(tb), width},
          shape.rows, nullptr);
      this->expect(tc, sum, 1e-6, "x + b");
      this->machine_->launch(kc::BiasActivationBody<kc::Identity>{this->pointer(tc), this->pointer(tr), {}, width},
                             shape.rows, nullptr);
      this->expect(tc, std::vector<double>(residual.begin(), residual.end()), 0, "a copy");
      this->sum_columns(kc::BiasGradient{this->pointer(tx)}, {this->pointer(tdb)}, 0.5F);
      this->expect(tdb, db, 1e-5, "db");
      this->machine_->launch(
          kc::BiasAddBody{this->pointer(tx), this->pointer(tx), this->pointer(tb), this->pointer(tr), width},
          shape.rows, nullptr);
      this->expect(tx, all, 2 * rounding(type), "residual + x + b");
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(ModelKernelsTest, CausalSoftmaxAndItsGradient) {
  for (std::size_t const seq : {1U, 3U, 64U, 131U, 516U}) {
    for (auto const type : kTypes) {
      for (bool const in_place : {false, true}) {
        std::size_t const matrices = seq > 100 ? 1 : 3;
        this->prepare({matrices * seq, seq}, type);
        auto scores = random_floats(this->count(), this->random_, 4);  // f32, as a product leaves them
        if (in_place) scores = as_stored(scores, type);
        auto const dp = this->draw(this->count());
        std::vector<double> p(scores.size()), ds(scores.size());
        for (std::size_t row = 0; row < matrices * seq; ++row) {
          std::size_t const used = row % seq + 1;
          double sum = 0, dot = 0;
          for (std::size_t i = 0; i < used; ++i) sum += std::exp(static_cast<double>(scores[row * seq + i]));
          for (std::size_t i = 0; i < used; ++i)
            p[row * seq + i] = std::exp(static_cast<double>(scores[row * seq + i])) / sum;
          for (std::size_t i = 0; i < used; ++i) dot += p[row * seq + i] * dp[row * seq + i];
          for (std::size_t i = 0; i < used; ++i) ds[row * seq + i] = p[row * seq + i] * (dp[row * seq + i] - dot);
          // What a product leaves where nobody may look.
          for (std::size_t i = used; i < seq; ++i) scores[row * seq + i] = i % 2 == 0 ? INFINITY : NAN;
        }
        auto ts = in_place ? this->tensor(scores) : this->floats(scores);
        auto tp = this->tensor(std::vector<float>(scores.size(), NAN));
        auto const& to = in_place ? ts : tp;
        auto const width = static_cast<std::uint32_t>(seq);
        this->machine_->launch(kc::CausalSoftmaxBody{this->pointer(to), this->pointer(ts), width}, matrices * seq,
                               nullptr);
        this->expect(to, p, rounding(type), "p");
        auto tdp = this->floats(dp);
        this->machine_->launch(
            kc::CausalSoftmaxGradientBody{this->pointer(to), this->pointer(tdp), this->pointer(to), width},
            matrices * seq, nullptr);
        this->expect(to, ds, 2 * rounding(type), "gradient");
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(ModelKernelsTest, EmbeddingsAndTheirGradients) {
  constexpr std::size_t kTable = 7;
  constexpr std::size_t kPositions = 6;
  for (std::size_t const width : {1U, 5U, 64U, 515U}) {
    for (auto const type : kTypes) {
      for (float const keep : {0.0F, 1.0F}) {
        constexpr std::size_t kSeq = 4;  // of more positions
        constexpr std::size_t kRows = 5 * kSeq;
        this->prepare({kRows, width}, type);
        auto const tokens = this->draw(kTable * width);
        auto const positions = this->draw(kPositions * width);
        auto const dx = this->draw(kRows * width);
        auto const machine = *this->machine_;
        std::vector<std::int32_t> ids(kRows);
        for (auto& id : ids) id = static_cast<std::int32_t>(this->random_() % (kTable - 1));  // one is never used
        std::vector<double> x(kRows * width), dt(kTable * width), dp(kPositions * width);
        for (std::size_t i = 0; i < dt.size(); ++i) dt[i] = static_cast<double>(keep) * tokens[i];
        for (std::size_t i = 0; i < dp.size(); ++i) dp[i] = static_cast<double>(keep) * positions[i];
        for (std::size_t row = 0; row < kRows; ++row) {
          for (std::size_t i = 0; i < width; ++i) {
            auto const token = static_cast<std::size_t>(ids[row]) * width + i;
            auto const position = row % kSeq * width + i;
            x[row * width + i] = static_cast<double>(tokens[token]) + positions[position];
            dt[token] += dx[row * width + i];
            dp[position] += dx[row * width + i];
          }
        }
        Buffer const memory = cuda::upload(machine, ids);
        auto const* const id = static_cast<std::int32_t const*>(memory.data());
        auto tt = this->tensor(tokens), tp = this->tensor(positions), tx = this->tensor(dx), tdx = this->tensor(dx);
        auto tdt = this->floats(keep == 0 ? std::vector<float>(dt.size(), NAN) : tokens);
        auto tdp = this->floats(keep == 0 ? std::vector<float>(dp.size(), NAN) : positions);
        auto const columns = static_cast<std::uint32_t>(width);
        machine.launch(kc::EmbeddingBody{this->pointer(tx), this->pointer(tt), this->pointer(tp), id, kSeq, columns},
                       kRows, nullptr);
        machine.launch(
            kc::EmbeddingGradientBody{this->pointer(tdt), this->pointer(tdx), id, kRows, kSeq, columns, keep}, kTable,
            nullptr);
        machine.launch(
            kc::EmbeddingGradientBody{this->pointer(tdp), this->pointer(tdx), nullptr, kRows, kSeq, columns, keep},
            kPositions, nullptr);
        this->expect(tx, x, rounding(type), "x");
        this->expect(tdt, dt, 1e-5, "dtokens");
        this->expect(tdp, dp, 1e-5, "dpositions");
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TEST(PhiloxTest, GivesTheKnownAnswers) {
  auto const words = [](std::uint32_t counter, std::uint64_t key) {
    auto const got = kernels::philox({{counter, counter, counter, counter}}, key);
    return std::vector<std::uint32_t>(got.word, got.word + 4);
  };
  EXPECT_EQ(words(0, 0), (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(0xffffffff, 0xffffffffffffffff),
            (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

}  // namespace
}  // namespace weft::test
