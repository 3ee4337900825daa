#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cuda/needs_gpu.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using CudaMemoryTest = NeedsGpu;

TEST(CudaWithoutGpuTest, ADeviceThatIsNotThereIsNamed) {
  int const missing = cuda::device_count();
  try {
    static_cast<void>(cuda::allocate(1, DataType::f32, missing));
    FAIL() << "allocated on cuda:" << missing;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("cuda:" + std::to_string(missing)), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(cuda::make_stream({.device = missing})), Error);
}

TEST(CudaWithoutGpuTest, ACpuStreamHasNoHandle) {
  Stream const stream = Stream::cpu();
  EXPECT_THROW(static_cast<void>(cuda::handle_of(stream)), Error);
}

TEST_F(CudaMemoryTest, IsZeroedAndCopiesBothWays) {
  Stream stream = cuda::make_stream();
  for (std::size_t const count : {0, 1, 3, 4097, 1 << 20}) {
    Buffer const device = cuda::allocate(count, DataType::f32);
    EXPECT_EQ(device.view().device, (Device{DeviceType::cuda, 0}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device.data()) % 256, 0U);
    std::vector<float> host(count, -1.0F);
    cuda::copy(BufferView(std::span(host)), device.view(), stream);
    stream.synchronize();
    EXPECT_EQ(host, std::vector<float>(count, 0.0F));
    std::vector<float> sent(count);
    std::iota(sent.begin(), sent.end(), 1.0F);
    cuda::copy(device.view(), BufferView(std::span(sent)), stream);
    cuda::copy(BufferView(std::span(host)), device.view(), stream);
    stream.synchronize();
    EXPECT_EQ(host, sent);
  }
}

TEST_F(CudaMemoryTest, RefusesWhatDoesNotFit) {
  Stream const stream = cuda::make_stream();
  Buffer const four = cuda::allocate(4, DataType::f32);
  Buffer const five = cuda::allocate(5, DataType::f32);
  EXPECT_THROW(cuda::copy(four.view(), five.view(), stream), Error);
  try {
    static_cast<void>(cuda::allocate(std::size_t{1} << 50, DataType::f32));
    FAIL() << "allocated 4 PiB";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
  }
  // The failure must not stick to later calls.
  EXPECT_EQ(cuda::allocate(4, DataType::f32).count(), 4U);
}

}  // namespace
}  // namespace weft::test
