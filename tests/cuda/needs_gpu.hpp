#pragma once

#include <gtest/gtest.h>

#include "weft/cuda.hpp"

namespace weft::test {

/// Tests that run on a GPU; skipped, with the reason, where there is none.
class NeedsGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device: cudaGetDeviceCount() finds none here";
  }
};

}  // namespace weft::test
