// train_gpt's model on a GPU in host memory: every gradient against slopes of the loss in double, and what the layers
// refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/fake/on_fake_gpu.hpp"
#include "device/gpt_on_device.hpp"
#include "examples/gpt_reference.hpp"
#include "gpt_parameters.hpp"
#include "weft/convert.hpp"
#include "weft/cpu_layers.hpp"
#include "weft/cuda_graph.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using train_gpt::DeviceBatch;
using train_gpt::GptConfig;
using train_gpt::GptOnDevice;
using train_gpt::GptParameters;

constexpr GptConfig kSmall{.layers = 2, .width = 8, .heads = 2, .seq = 5};
constexpr std::size_t kTokens = 11;  // few, so that tokens repeat and their gradients add up

Buffer on_device(std::vector<float> const& values, DataType type, Stream& stream) {
  Buffer host = Buffer::host(values.size(), type);
  convert(BufferView(std::span(const_cast<std::vector<float>&>(values))), host.view());
  Buffer memory = cuda::allocate(values.size(), type);
  cuda::copy(memory.view(), host.view(), stream);
  stream.synchronize();
  return memory;
}

std::vector<float> in_f32(BufferView const& view, Stream& stream) {
  Buffer const host = Buffer::host(view.count, view.dtype);
  cuda::copy(host.view(), view, stream);
  stream.synchronize();
  std::vector<float> values(view.count);
  convert(host.view(), BufferView(std::span(values)));
  return values;
}

/// Weights far from their initial values, so that every term of every gradient counts.
class RandomTensors final : public train_gpt::DeviceTensors {
 public:
  RandomTensors(DataType type, float gradient, Stream& stream) : stream_(stream) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0F, 0.4F);
    GptParameters const parameters(kSmall);
    for (auto const& tensor : parameters.tensors()) {
      std::vector<float> values(tensor.count);
      for (float& value : values) value = normal(random);
      parameters_.push_back(on_device(values, type, stream));
      gradients_.push_back(on_device(std::vector<float>(tensor.count, gradient), type, stream));
    }
    announced.resize(parameters_.size());
  }
  [[nodiscard]] BufferView parameter(std::size_t index) override { return parameters_[index].view(); }
  [[nodiscard]] BufferView gradient(std::size_t index) override { return gradients_[index].view(); }
  void gradient_done(std::size_t index) override { announced[index] = values(gradients_[index]); }
  [[nodiscard]] float keep() const override { return kept; }

  [[nodiscard]] std::vector<float> values(Buffer const& of) { return in_f32(of.view(), stream_); }
  [[nodiscard]] std::vector<std::vector<double>> in_double() {
    std::vector<std::vector<double>> all;
    for (auto const& one : parameters_) {
      auto const floats = values(one);
      all.emplace_back(floats.begin(), floats.end());
    }
    return all;
  }
  [[nodiscard]] std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> all;
    for (auto const& one : gradients_) all.push_back(values(one));
    return all;
  }

  std::vector<std::vector<float>> announced;  ///< gradients when they were done
  float kept = 0;

 private:
  Stream& stream_;
  std::vector<Buffer> parameters_, gradients_;
};

/// Sequences here and on the device.
struct Sequences {
  Sequences(int count, Stream& stream) {
    std::mt19937 random(4);
    std::vector<std::int32_t> in, out;
    for (int i = 0; i < count * kSmall.seq; ++i) {
      inputs.push_back(static_cast<std::uint8_t>(random() % kTokens));
      targets.push_back(static_cast<std::uint8_t>(random() % 256));
      in.push_back(inputs.back());
      out.push_back(targets.back());
    }
    memory = cuda::allocate(2 * in.size(), DataType::i32);
    batch = {memory.view().slice(0, in.size()), memory.view().slice(in.size(), in.size()), kSmall.seq};
    cuda::copy(memory.view().slice(0, in.size()), BufferView(std::span(in)), stream);
    cuda::copy(memory.view().slice(in.size(), in.size()), BufferView(std::span(out)), stream);
    stream.synchronize();
  }
  std::vector<std::uint8_t> inputs, targets;
  Buffer memory;
  DeviceBatch batch;
};

class FakeGpt : public OnFakeGpu {
 protected:
  /// Forward and backward; the loss.
  float run(GptOnDevice& model, Sequences const& sequences, RandomTensors& tensors, float share = 1,
            ConstBufferView scale = {}) {
    Buffer const loss = cuda::allocate(1, DataType::f32);
    model.forward(sequences.batch, tensors, loss.view());
    model.backward(sequences.batch, tensors, share, scale);
    return in_f32(loss.view(), stream)[0];
  }

  Stream stream = cuda::make_stream();
};

/// What rounding in every layer may do to a gradient, relative to its tensor's largest.
double tolerance_of(DataType type) {
  if (type == DataType::f32) return 1e-4;
  return type == DataType::bf16 ? 8e-2 : 1e-2;
}

TEST_F(FakeGpt, EveryGradientIsTheReferencesSlope) {
  for (auto const type : {DataType::f32, DataType::bf16, DataType::f16}) {
    for (int const count : {3, 1}) {  // more sequences than heads, and fewer
      GptOnDevice model(kSmall, {.max_batch = 4, .type = type}, stream);
      RandomTensors tensors(type, NAN, stream);  // whatever gradients' memory holds must not matter
      Sequences const sequences(count, stream);
      float const loss = run(model, sequences, tensors);
      auto parameters = tensors.in_double();
      auto const gradients = tensors.gradients();
      GptReference const reference(kSmall, parameters);
      auto const exact = [&] { return reference.loss(sequences.inputs, sequences.targets); };
      EXPECT_NEAR(loss, exact(), type == DataType::f32 ? 2e-5 : 5e-2);
      for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
        double worst = 0, largest = 0;
        for (std::size_t i = 0; i < parameters[tensor].size(); ++i) {
          bool const unused = tensor == 0 && i >= kTokens * static_cast<std::size_t>(kSmall.width);
          double slope = 0;  // of tokens that do not occur
          if (!unused) {
            constexpr double kStep = 1e-5;
            double& value = parameters[tensor][i];
            double const centre = value;
            value = centre + kStep;
            double const above = exact();
            value = centre - kStep;
            slope = (above - exact()) / (2 * kStep);
            value = centre;
          }
          ASSERT_TRUE(std::isfinite(gradients[tensor][i]));
          worst = std::max(worst, std::abs(slope - static_cast<double>(gradients[tensor][i])));
          largest = std::max(largest, std::abs(slope));
        }
        EXPECT_LT(worst, 1e-6 + tolerance_of(type) * largest)
            << GptParameters(kSmall).tensors()[tensor].name << " of " << to_string(type) << ", " << count;
      }
      EXPECT_EQ(tensors.announced, gradients);
    }
  }
}

TEST_F(FakeGpt, GradientsAccumulateShareAndScale) {
  GptOnDevice model(kSmall, {.max_batch = 3}, stream);
  Sequences const sequences(3, stream);
  RandomTensors once(DataType::f32, 0, stream);
  RandomTensors added(DataType::f32, 7, stream);
  added.kept = 1;
  run(model, sequences, once);
  Buffer const scale = on_device({8}, DataType::f32, stream);
  run(model, sequences, added, 0.25F, scale.view());
  auto const expected = once.gradients();
  auto const got = added.gradients();
  for (std::size_t tensor = 0; tensor < got.size(); ++tensor) {
    for (std::size_t i = 0; i < got[tensor].size(); ++i) {
      ASSERT_NEAR(got[tensor][i], 7 + 2 * expected[tensor][i], 1e-5) << tensor << " [" << i << "]";
    }
  }
}

TEST_F(FakeGpt, RecomputingChangesNoBit) {
  for (auto const type : {DataType::f32, DataType::bf16}) {
    Sequences const sequences(3, stream);
    GptOnDevice keeps(kSmall, {.max_batch = 3, .type = type}, stream);
    GptOnDevice recomputes(kSmall, {.max_batch = 3, .recompute = true, .type = type}, stream);
    RandomTensors expected(type, NAN, stream);
    RandomTensors got(type, NAN, stream);
    EXPECT_EQ(run(recomputes, sequences, got), run(keeps, sequences, expected));
    EXPECT_EQ(got.gradients(), expected.gradients());
  }
}

TEST_F(FakeGpt, LayersRefuseWhatDoesNotFit) {
  cuda::Layers layers(stream, {64, 8});
  Buffer const memory = cuda::allocate(1024, DataType::f32);
  Buffer const narrow = cuda::allocate(1024, DataType::bf16);
  Buffer const host = Buffer::host(64, DataType::f32);
  auto const some = [&](std::size_t count) { return memory.view().slice(0, count); };
  auto const refused = [&](ErrorCode code, std::string const& word, auto const& call) {
    try {
      call();
      ADD_FAILURE() << "not refused: " << word;
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  auto const invalid = ErrorCode::invalid_argument;
  auto const calls = gpu.count("cudaLaunchKernel") + gpu.count("cublasGemmStridedBatchedEx");
  refused(invalid, "linear: x is 63 f32", [&] { layers.linear(some(64), some(63), some(64), {8, 8, 8}); });
  refused(invalid, "one type", [&] { layers.linear(some(64), some(64), narrow.view().slice(0, 64), {8, 8, 8}); });
  refused(invalid, "on cuda:0", [&] { layers.linear(some(64), host.view(), some(64), {8, 8, 8}); });
  refused(invalid, "128 x 8", [&] { layers.bias_gradient(some(8), some(1024), 0); });
  refused(invalid, "whole rows of 3", [&] { layers.bias_gelu(some(64), some(64), some(3)); });
  refused(invalid, "whole rows of 3", [&] { layers.bias_quick_gelu(some(64), some(64), some(3)); });
  refused(invalid, "whole rows of 3", [&] { layers.bias_erf_gelu(some(64), some(64), some(3)); });
  refused(ErrorCode::unsupported, "i32", [&] { layers.cross_entropy(some(1), some(9), some(32), some(4)); });
  refused(ErrorCode::unsupported, "mean is 8 bf16",
          [&] { layers.layer_norm(some(64), narrow.view().slice(0, 8), some(8), some(64), some(8), some(8)); });
  refused(invalid, "scores must not be", [&] {
    layers.attention_gradient(some(48), some(16), some(16), some(16), some(48), {1, 4, 1, 4});
  });
  refused(invalid, "stream is on cpu", [&] { cuda::Layers const other(Stream::cpu(), {1, 1}); });
  refused(invalid, "one f32 for each row", [&] { layers.layer_norm(some(64), some(7), some(7), some(64), {}, {}); });
  refused(invalid, "p must be", [&] { layers.bias_dropout_add(some(64), some(64), {}, some(64), {.p = 1}, 8); });
  refused(ErrorCode::unsupported, "seed_at is 1 f32",
          [&] { layers.bias_dropout_add(some(64), some(64), {}, some(64), {.seed_at = some(1)}, 8); });
  refused(invalid, "scratch is 15 f32 on cuda:0; it must be 16", [&] {
    cuda::Layers const other(stream, {1, 8}, some(15));
  });
  cuda::Layers fused(stream, {1, 8}, some(16));
  refused(ErrorCode::unsupported, "linear: these layers", [&] { fused.linear(some(8), some(8), some(64), {1, 8, 8}); });
  EXPECT_EQ(gpu.count("cudaLaunchKernel") + gpu.count("cublasGemmStridedBatchedEx"), calls);
}

TEST_F(FakeGpt, FusedLayersInTheCallersMemoryAreThoseOfTheCpu) {
  constexpr std::size_t kRows = 70;
  constexpr std::size_t kWidth = 33;
  cuda::Layers::Limits const limits{kRows, kWidth};
  Buffer const scratch = cuda::allocate(cuda::Layers::scratch_count(limits), DataType::f32);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  auto const draw = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  };
  auto x = draw(kRows * kWidth), residual = draw(kRows * kWidth);
  std::vector<float> zeros(kWidth), y(x.size()), dx(x.size()), db(kWidth);
  auto const view = [](std::vector<float>& values) { return BufferView(std::span(values)); };
  cpu::Dropout const dropout{.p = 0.3, .seed = 0x123456789ABCDEF};
  cpu::bias_dropout_add(view(y), view(x), view(zeros), view(residual), dropout);
  cpu::bias_dropout_gradient(view(dx), view(db), view(x), dropout);

  Buffer const gx = on_device(x, DataType::f32, stream);
  Buffer const gr = on_device(residual, DataType::f32, stream);
  Buffer const gy = cuda::allocate(x.size(), DataType::f32);
  Buffer const gdx = cuda::allocate(x.size(), DataType::f32);
  Buffer const gdb = on_device(std::vector<float>(kWidth, NAN), DataType::f32, stream);
  Buffer const seed = Buffer::host(1, DataType::i64);
  *static_cast<std::uint64_t*>(seed.data()) = dropout.seed;
  Buffer const gseed = cuda::allocate(1, DataType::i64);
  cuda::copy(gseed.view(), seed.view(), stream);
  auto const waits = gpu.host_waits_here();
  {
    cuda::Layers layers(stream, limits, scratch.view());
    cuda::Dropout const there{.p = dropout.p, .seed_at = gseed.view()};
    layers.bias_dropout_add(gy.view(), gx.view(), {}, gr.view(), there, kWidth);
    layers.bias_dropout_gradient(gdx.view(), gdb.view(), gx.view(), there, 0);
  }
  EXPECT_EQ(gpu.host_waits_here(), waits);
  EXPECT_EQ(in_f32(gdx.view(), stream), dx);
  auto const got = in_f32(gy.view(), stream);
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(got[i], y[i], 1e-6) << i;  // some CPUs have no fused multiply-add
  auto const sums = in_f32(gdb.view(), stream);
  for (std::size_t i = 0; i < kWidth; ++i) EXPECT_NEAR(sums[i], db[i], 1e-5);

  // Without weights or rows.
  cuda::Layers layers(stream, limits, scratch.view());
  Buffer const mean = cuda::allocate(kRows, DataType::f32);
  Buffer const rstd = cuda::allocate(kRows, DataType::f32);
  Buffer const ones = on_device(std::vector<float>(kWidth, 1), DataType::f32, stream);
  layers.layer_norm(gy.view(), mean.view(), rstd.view(), gx.view(), ones.view(), {}, 0.5F);
  layers.layer_norm(gdx.view(), mean.view(), rstd.view(), gx.view(), {}, {}, 0.5F);
  EXPECT_EQ(in_f32(gy.view(), stream), in_f32(gdx.view(), stream));
  layers.bias_gelu(gy.view(), gx.view(), {}, kWidth);
  EXPECT_NEAR(in_f32(gy.view(), stream)[0],
              0.5 * x[0] * (1 + std::tanh(0.7978845608 * (x[0] + 0.044715 * std::pow(x[0], 3)))), 1e-6);
  auto const none = gx.view().slice(0, 0);
  layers.layer_norm(none, none, none, none, ones.view(), {});
  layers.bias_gelu_gradient(none, gdb.view(), none, none, {}, 0);
  EXPECT_EQ(in_f32(gdb.view(), stream), zeros);
}

TEST_F(FakeGpt, GraphsReplayAndRefuseWhatCannotBeRecorded) {
  Buffer const value = on_device({1}, DataType::f32, stream);
  cuda::Layers layers(stream, {1, 1});
  auto const twice = [&] { layers.add_bias(value.view(), value.view(), value.view(), 1); };
  auto const graph = cuda::Graph::record(stream, twice);
  EXPECT_EQ(in_f32(value.view(), stream)[0], 1);  // recording runs nothing
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  EXPECT_EQ(in_f32(value.view(), stream)[0], 8);
  EXPECT_THROW(static_cast<void>(cuda::Graph::record(stream, [] { throw std::runtime_error("stop"); })),
               std::runtime_error);
  twice();  // the stream is not being recorded any more
  EXPECT_EQ(in_f32(value.view(), stream)[0], 16);
  EXPECT_THROW(static_cast<void>(cuda::Graph::record(Stream::cpu(), twice)), Error);
  EXPECT_THROW(graph.launch(Stream::cpu()), Error);
  EXPECT_THROW(
      static_cast<void>(cuda::Graph::record(stream, [&] { static_cast<void>(cuda::Graph::record(stream, twice)); })),
      Error);
  gpu.fail_next("cudaGraphInstantiate", cudaErrorMemoryAllocation);
  EXPECT_THROW(static_cast<void>(cuda::Graph::record(stream, twice)), Error);
  EXPECT_EQ(gpu.live_graphs(), 1U);
}

}  // namespace
}  // namespace weft::test
