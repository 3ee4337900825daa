// Ranks that are left go on with their GPUs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "cuda/fake/fake_nccl_failures.hpp"
#include "harness/tally.hpp"

namespace weft::test {
namespace {

TEST_F(FakeNcclFailures, SurvivorsShrinkToACommunicatorOfTheirOwn) {
  for (bool const revoked : {false, true}) {
    gpu.forget_calls();
    run_thread_bootstraps(3, [&](std::shared_ptr<Bootstrap> const& bootstrap) {
      auto const all = nccl::NcclCommunicator::create(FakeNccl::libraries(), *bootstrap, 60s);
      if (bootstrap->rank() == 1) {
        all->stop();
        return;
      }
      if (revoked) all->stop();
      std::array const lost{1};
      auto const rest = all->shrink(lost);
      ASSERT_NE(rest, nullptr);
      EXPECT_TRUE(all->is_stopped());
      float value = 1;
      Stream stream = gpu.make_stream();
      {
        nccl::NcclCommunicator::Use const use(*rest);
        rest->settle(
            rest->nccl().all_reduce(&value, &value, 1, ncclFloat32, ncclSum, use.handle(), cuda::handle_of(stream)),
            "ncclAllReduce");
      }
      stream.synchronize();
      EXPECT_EQ(value, 2.0F);
    });
    EXPECT_EQ(gpu.count(revoked ? "ncclCommShrink" : "ncclCommShrink(abort)"), 2U);
  }
}

TEST_F(FakeNcclFailures, CommunicatorsShrinkWithTheirGpus) {
  for (bool const with_revoke : {true, false}) {
    gpu.forget_calls();
    run_thread_ranks(4, [&](Communicator& world) {
      FakeNccl::connect(world, 0, with_revoke);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(4, 1.0F);
      reduce(world, values, stream).wait();
      world.barrier();  // what is not seen to be through when a rank leaves fails
      auto const number = world.rank();
      if (number == 2) return;
      Work const work = reduce_or_fail(world, values, stream);
      expect_failed(world, work, stream, ErrorCode::peer_lost, {"rank 2 left"});
      auto rest = world.shrink();
      EXPECT_EQ(rest.size(), 3);
      EXPECT_EQ(rest.rank(), number == 3 ? 2 : number);
      std::vector<float> again(5, 1.0F);
      reduce(rest, again, stream).wait();
      EXPECT_EQ(again[4], 3.0F);
      EXPECT_THROW(static_cast<void>(reduce(world, values, stream)), Error);
    });
    EXPECT_EQ(gpu.count("ncclCommShrink"), with_revoke ? 3U : 0U);
    EXPECT_EQ(gpu.count("ncclCommInitRankConfig"), with_revoke ? 4U : 7U);
  }
}

TEST_F(FakeNcclFailures, RanksThatAreLeftShrinkAgainWhenTheNextIsLost) {
  for (bool const with_revoke : {true, false}) {
    run_thread_ranks(4, [&](Communicator& world) {
      FakeNccl::connect(world, 0, with_revoke);
      Stream const stream = gpu.make_stream();
      std::vector<float> values(4, 1.0F);
      reduce(world, values, stream).wait();
      world.barrier();  // what is not seen to be through when a rank leaves fails
      std::optional<Communicator> rest;
      auto const number = world.rank();
      for (int const lost : {3, 1}) {
        auto& before = rest ? *rest : world;
        if (number == lost) return;
        Work const work = reduce_or_fail(before, values, stream);
        expect_failed(before, work, stream, ErrorCode::peer_lost, {"rank " + std::to_string(lost) + " left"});
        rest = before.shrink();
        std::vector<float> again(5, 1.0F);
        reduce(*rest, again, stream).wait();
        rest->barrier();
        EXPECT_EQ(again, std::vector<float>(5, static_cast<float>(rest->size())));
      }
      EXPECT_EQ(rest->size(), 2);
    });
  }
}

TEST_F(FakeNcclFailures, CallsThatArePendingEndWhenTheRanksShrink) {
  constexpr std::size_t kPending = 8;
  run_ranks(3, [&](Communicator& world) {
    Stream const stream = gpu.make_stream();
    if (world.rank() == 0) return;
    std::vector<std::vector<float>> values(kPending, std::vector<float>(4, 1.0F));
    std::vector<Work> pending;
    for (auto& one : values) pending.push_back(reduce_or_fail(world, one, stream));
    auto rest = world.shrink();  // nobody waits for them
    for (auto const& work : pending) EXPECT_THROW(work.wait(), Error);
    std::vector<float> again(5, 1.0F);
    reduce(rest, again, stream).wait();
    EXPECT_EQ(again, std::vector<float>(5, 2.0F));
  });
}

TEST_F(FakeNcclFailures, WhereNcclCannotShrinkTheRanksBeginAnew) {
  run_thread_ranks(
      3,
      [&](Communicator& world) {
        FakeNccl::connect(world);
        if (world.rank() == 0) {
          nccl.fail_next("ncclCommShrink", ncclInternalError);
          return;
        }
        auto rest = world.shrink();
        Stream const stream = gpu.make_stream();
        std::vector<float> again(5, 1.0F);
        reduce(rest, again, stream).wait();
        EXPECT_EQ(again[4], 2.0F);
      },
      with_timeout(4000ms));
}

// Ranks as processes, each with a GPU of its own: one is killed while the other waits for it on the GPU.
TEST(FakeNcclKilled, TheOthersAreToldAndGoOn) {
  Tally called;
  auto const exits = run_forked_ranks(2, [&](Communicator& world) {
    auto& gpu = *new FakeGpu;  // outlives the communicator, as does what follows
    auto& nccl = *new FakeNccl;
    nccl.others_are_elsewhere = true;
    FakeNccl::connect(world);
    Stream const stream = gpu.make_stream();
    std::vector<float> values(4, 1.0F);
    BufferView const view(values.data(), 4, DataType::f32, kGpu);
    Work const work = world.all_reduce(view, view, ReduceOp::sum, {.stream = stream});
    called.add();
    if (world.rank() == 1) {
      called.await(2);
      ::kill(::getpid(), SIGKILL);
    }
    auto const began = std::chrono::steady_clock::now();
    try {
      work.wait();
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost);
      for (auto const* word : {"rank 1 died before completing all_reduce(4 × f32, sum), call 1 on cuda:0",
                               "it made 1 collective call there; rank 0 waited", "shrink()"})
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, kNoticed);
    auto rest = world.shrink();
    EXPECT_EQ(rest.size(), 1);
    rest.all_reduce(view, view, ReduceOp::sum, {.stream = stream}).wait();
    EXPECT_EQ(values[0], 1.0F);
    EXPECT_EQ(gpu.count("ncclCommShrink"), 1U);
    EXPECT_EQ(gpu.violations(), std::vector<std::string>{});
    return 0;
  });
  EXPECT_EQ(exits[1].signal, SIGKILL) << exits[1].output;
  EXPECT_EQ(exits[0].code, 0) << exits[0].output;
}

}  // namespace
}  // namespace weft::test
