#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "cuda/fake/fake_nccl.hpp"
#include "cuda/fake/on_fake_gpu.hpp"
#include "harness/ranks.hpp"

namespace weft::test {

/// The same with ranks that are threads, whose communicators come to an end.
class OnFakeNccl : public OnFakeGpu {
 protected:
  void TearDown() override {
    OnFakeGpu::TearDown();
    // Nobody waits long for an abort.
    for (int waited = 0; nccl.live() > 0 && waited < 2000; ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(nccl.live(), 0U) << "communicators that were not ended";
  }

  /// Ranks that are connected.
  static void run_ranks(int ranks, std::function<void(Communicator&)> const& body,
                        CommunicatorOptions const& options = {}) {
    run_thread_ranks(
        ranks,
        [&](Communicator& world) {
          FakeNccl::connect(world);
          body(world);
        },
        options);
  }

  FakeNccl nccl;
};

}  // namespace weft::test
