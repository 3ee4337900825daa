#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/needs_gpu.hpp"
#include "weft/error.hpp"
#include "weft/optimizer.hpp"

namespace weft::test {
namespace {

using CudaAdamWTest = NeedsGpu;

std::vector<float> random_vector(std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// The four tensors inside larger device buffers, each `offset` elements from an aligned start.
class DeviceTensors {
 public:
  DeviceTensors(std::size_t count, std::vector<std::size_t> const& offsets, Stream const& stream)
      : stream_(stream), count_(count), offsets_(offsets) {
    for (int i = 0; i < 4; ++i) buffers_.push_back(cuda::allocate(count + 8, DataType::f32));
  }
  [[nodiscard]] BufferView view(std::size_t i) const { return buffers_[i].view().slice(offsets_[i], count_); }
  void upload(std::size_t i, std::vector<float>& values) {
    cuda::copy(view(i), BufferView(std::span(values)), stream_);
  }
  std::vector<float> download_whole(std::size_t i) {
    std::vector<float> values(count_ + 8);
    cuda::copy(BufferView(std::span(values)), buffers_[i].view(), stream_);
    stream_.synchronize();
    return values;
  }
  [[nodiscard]] cuda::AdamWTensors tensors() const { return {view(0), view(1), view(2), view(3)}; }

 private:
  Stream stream_;
  std::size_t count_;
  std::vector<std::size_t> offsets_;
  std::vector<Buffer> buffers_;
};

TEST_F(CudaAdamWTest, FollowsTheCpuOptimizer) {
  std::mt19937_64 random(4);
  Stream stream = cuda::make_stream();
  std::vector<std::vector<std::size_t>> const alignments{{0, 0, 0, 0}, {3, 3, 3, 3}, {0, 1, 2, 3}};
  for (std::size_t const count : {0, 1, 2, 3, 4, 5, 1021, 4097, 1'000'003}) {
    for (auto const& offsets : alignments) {
      auto parameters = random_vector(count, random);
      DeviceTensors device(count, offsets, stream);
      device.upload(0, parameters);
      stream.synchronize();
      AdamWOptions const adamw;
      Optimizer cpu({BufferView(std::span(parameters))}, adamw);
      for (int step = 1; step <= 5; ++step) {
        auto gradient = random_vector(count, random);
        device.upload(1, gradient);
        cuda::adamw(device.tensors(), adamw, step, stream);
        cpu.begin_step();
        cpu.update(0, BufferView(std::span(gradient)));
        stream.synchronize();
      }
      auto const got = device.download_whole(0);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(got[offsets[0] + i], parameters[i], 2e-6 * std::max(1.0F, std::fabs(parameters[i])))
            << i << " of " << count;
      }
      for (std::size_t i = 0; i < offsets[0]; ++i) ASSERT_EQ(got[i], 0.0F) << "wrote before the parameter";
      for (std::size_t i = offsets[0] + count; i < got.size(); ++i)
        ASSERT_EQ(got[i], 0.0F) << "wrote past the parameter";
    }
  }
}

TEST_F(CudaAdamWTest, RefusesWhatDoesNotFit) {
  Stream const stream = cuda::make_stream();
  DeviceTensors const device(10, {0, 0, 0, 0}, stream);
  auto tensors = device.tensors();
  EXPECT_THROW(cuda::adamw(tensors, {}, 0, stream), Error);
  EXPECT_THROW(cuda::adamw(tensors, {}, 1, Stream::cpu()), Error);
  tensors.gradient.count = 9;
  EXPECT_THROW(cuda::adamw(tensors, {}, 1, stream), Error);
}

}  // namespace
}  // namespace weft::test
