// Failures with the real NCCL: ranks that die, do not come or make other calls; the others are told, and go on.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/cuda.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 1000;

/// Asked in a process of its own: ranks cannot be forked from one that has used CUDA.
int count_gpus() {
  return run_forked(1, [](int) { return cuda::device_count(); }).front().code;
}

/// One rank's GPU, each a "host" of its own as NCCL sees it, and a vector there.
class RankOnGpu {
 public:
  explicit RankOnGpu(Communicator& world, int gpus)
      : device_{DeviceType::cuda, world.rank() % gpus},
        stream_(cuda::make_stream({.device = device_.index})),
        values_(cuda::allocate(kCount, DataType::f32, device_.index)) {
    setenv("NCCL_HOSTID", ("weft-test-" + std::to_string(world.rank())).c_str(), 1);
    world.connect(device_);
  }

  [[nodiscard]] Device device() const { return device_; }

  Work reduce(Communicator& of, std::size_t count = kCount) {
    auto const view = values_.view().slice(0, count);
    return of.all_reduce(view, view, ReduceOp::sum, {.stream = stream_});
  }
  /// The sum of everybody's 1.
  float sum_of_ones(Communicator& of) {
    std::vector<float> host(kCount, 1.0F);
    BufferView const there(host.data(), kCount, DataType::f32);
    cuda::copy(values_.view(), there, stream_);
    reduce(of).wait();
    cuda::copy(there, values_.view(), stream_);
    stream_.synchronize();
    return host.back();
  }
  /// What the call failed with, which names all of `words`.
  void expect_failure(Communicator& of, ErrorCode code, std::vector<std::string> const& words,
                      std::size_t count = kCount) {
    auto const began = std::chrono::steady_clock::now();
    try {
      reduce(of, count).wait();
      ADD_FAILURE() << "the call succeeded";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (auto const& word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
  }

 private:
  Device device_;
  Stream stream_;
  Buffer values_;
};

class NcclFailuresOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    gpus_ = count_gpus();
    if (gpus_ <= 0) GTEST_SKIP() << "no CUDA device: cudaGetDeviceCount() finds none here";
  }
  static CommunicatorOptions with_timeout(std::chrono::milliseconds timeout) {
    Config config;
    config.timeout = timeout;
    config.log_level = "info";  // why NCCL begins anew, where that takes long
    return {.config = config};
  }

  int gpus_ = 0;
};

TEST_F(NcclFailuresOnGpu, TheOthersOfAKilledRankAreToldAndGoOn) {
  auto const exits = run_forked_ranks(
      3,
      [&](Communicator& world) {
        RankOnGpu rank(world, gpus_);
        EXPECT_EQ(rank.sum_of_ones(world), 3.0F);
        if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
        rank.expect_failure(world, ErrorCode::peer_lost,
                            {"rank 1 died", "all_reduce(1000 × f32, sum), call 2", "shrink()"});
        auto rest = world.shrink();
        EXPECT_EQ(rest.size(), 2);
        EXPECT_EQ(rank.sum_of_ones(rest), 2.0F);
        return 0;
      },
      with_timeout(20s));
  EXPECT_EQ(exits[1].signal, SIGKILL);
  expect_all_succeeded({exits[0], exits[2]});
}

TEST_F(NcclFailuresOnGpu, OtherCallsAreNamedAndTheRanksBeginAnew) {
  expect_all_succeeded(run_forked_ranks(
      2,
      [&](Communicator& world) {
        RankOnGpu rank(world, gpus_);
        EXPECT_EQ(rank.sum_of_ones(world), 2.0F);
        rank.expect_failure(world, ErrorCode::mismatch, {"all_reduce(10 × f32, sum)", "all_reduce(20 × f32, sum)"},
                            world.rank() == 0 ? 10 : 20);
        auto const began = std::chrono::steady_clock::now();
        world.connect(rank.device());
        EXPECT_LT(std::chrono::steady_clock::now() - began, 8s)
            << "a rank waited inside of NCCL for one that cannot come";
        EXPECT_EQ(rank.sum_of_ones(world), 2.0F);
        return 0;
      },
      with_timeout(20s)));
}

TEST_F(NcclFailuresOnGpu, ARankThatDoesNotComeIsNamedInTime) {
  expect_all_succeeded(run_forked_ranks(
      2,
      [&](Communicator& world) {
        RankOnGpu rank(world, gpus_);
        EXPECT_EQ(rank.sum_of_ones(world), 2.0F);
        if (world.rank() == 0) {
          rank.expect_failure(world, ErrorCode::timeout, {"rank 1 did not make it"});
        } else {
          std::this_thread::sleep_for(16s);
          EXPECT_THROW(rank.reduce(world).wait(), Error);  // it is over
        }
        return 0;
      },
      with_timeout(12s)));  // of which NCCL gets three quarters to begin, beside other tests
}

}  // namespace
}  // namespace weft::test
