#pragma once

#include <gtest/gtest.h>
#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <thread>
#include <vector>
#include "collectives/device_access.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "cuda/fake/on_fake_nccl.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {

using namespace std::chrono_literals;
/// Calls on a fake GPU over a fake NCCL, which may fail.
class FakeNcclFailures : public OnFakeNccl {
 protected:
  static BufferView on_gpu(std::vector<float>& values) { return {values.data(), values.size(), DataType::f32, kGpu}; }
  static Work reduce(Communicator& world, std::vector<float>& values, Stream const& stream) {
    return world.all_reduce(on_gpu(values), on_gpu(values), ReduceOp::sum, {.stream = stream});
  }
  /// A call that fails on the way, or later.
  static Work reduce_or_fail(Communicator& world, std::vector<float>& values, Stream const& stream) {
    try {
      return reduce(world, values, stream);
    } catch (Error const&) {
      return enqueue_work(Stream::cpu(), [error = std::current_exception()] { std::rethrow_exception(error); });
    }
  }
  /// What waiting for the Work, and every later call, throws.
  static void expect_failed(Communicator& world, Work const& work, Stream const& stream, ErrorCode code,
                            std::vector<std::string> const& words) {
    auto const expect = [&](auto const& body) {
      try {
        body();
        ADD_FAILURE() << "did not fail";
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        for (auto const& word : words)
          EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    };
    expect([&] { work.wait(); });
    std::vector<float> values(4);
    expect([&] { static_cast<void>(reduce(world, values, stream)); });
  }

  /// The same where the call in question may have been through before: later ones fail.
  static void expect_over(Communicator& world, Stream const& stream, ErrorCode code,
                          std::vector<std::string> const& words) {
    std::vector<float> values(4);
    Work const later = reduce_or_fail(world, values, stream);
    expect_failed(world, later, stream, code, words);
  }

  static CommunicatorOptions with_timeout(std::chrono::milliseconds timeout) {
    Config config;
    config.timeout = timeout;
    return {.config = config};
  }
};

}  // namespace weft::test
