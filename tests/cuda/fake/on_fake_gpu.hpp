#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/fake/fake_gpu.hpp"

namespace weft::test {

inline constexpr Device kGpu{DeviceType::cuda, 0};

/// Tests on a GPU in host memory: nothing may happen on it that a real one would leave to luck.
class OnFakeGpu : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(gpu.violations(), std::vector<std::string>{});
    EXPECT_EQ(gpu.live_graphs(), 0U);
  }

  FakeGpu gpu;
};

}  // namespace weft::test
