#include "weft/call_observer.hpp"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "harness/ranks.hpp"
#include "weft/data_parallel.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

/// What was seen of all ranks of this process.
struct Seen final : CallObserver {
  struct One final : CallObserver::Call {
    explicit One(Seen& seen) : seen_(seen) {}
    void started() noexcept override { ++seen_.started_; }
    void finished() noexcept override { ++seen_.finished_; }
    Seen& seen_;
  };
  std::shared_ptr<CallObserver::Call> enqueued(std::string_view operation, std::size_t bytes) override {
    std::lock_guard const lock(mutex_);
    ++calls_[std::string(operation) + " " + std::to_string(bytes)];
    return std::make_shared<One>(*this);
  }

  Seen() { observe_calls(this); }
  ~Seen() override { observe_calls(nullptr); }
  std::mutex mutex_;
  std::map<std::string, int> calls_;
  std::atomic<int> started_{0};
  std::atomic<int> finished_{0};
};

using Calls = std::map<std::string, int>;

TEST(CallObserver, SeesWhatIsEnqueuedWithTheBytesOfAllRanks) {
  Seen seen;
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    std::vector<float> whole(8, 1.0F);
    std::vector<float> part(4, 1.0F);
    world.all_reduce(std::span(whole), std::span(whole), ReduceOp::sum, {.stream = stream}).wait();
    world.all_gather(std::span(part), std::span(whole), {.stream = stream}).wait();
    world.reduce_scatter(std::span(whole), std::span(part), ReduceOp::sum, {.stream = stream}).wait();
    world.all_reduce(std::span(whole), std::span(whole), ReduceOp::sum);  // done when it returns
    Group group(world, {.stream = stream});
    world.all_gather(std::span(part), std::span(whole));
    std::vector<float> more(8, 1.0F);
    world.all_gather(std::span(part), std::span(more));
    group.end().wait();
  });
  EXPECT_EQ((Calls{{"all_reduce 32", 2}, {"all_gather 32", 2}, {"reduce_scatter 32", 2}, {"all_gather 64", 2}}),
            seen.calls_);
  EXPECT_EQ(8, seen.started_);
  EXPECT_EQ(8, seen.finished_);
}

TEST(CallObserver, SeesMergedCallsAsTheOneThatTheyBecome) {
  Seen seen;
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    world.fuse(stream);
    std::vector<float> numbers(8, 1.0F);
    std::vector<float> more(24, 1.0F);
    auto const first = world.all_reduce(std::span(numbers), std::span(numbers), ReduceOp::sum, {.stream = stream});
    world.all_reduce(std::span(more), std::span(more), ReduceOp::sum, {.stream = stream}).wait();
    first.wait();
    std::vector<float> part(4, 1.0F);
    world.all_gather(std::span(part), std::span(numbers), {.stream = stream}).wait();  // alone
  });
  EXPECT_EQ((Calls{{"all_reduce 128", 2}, {"all_gather 32", 2}}), seen.calls_);
  EXPECT_EQ(4, seen.started_);
  EXPECT_EQ(4, seen.finished_);
}

TEST(CallObserver, IsToldWhenAFailedCallIsOver) {
  Seen seen;
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    std::vector<float> numbers(static_cast<std::size_t>(8 + world.rank()));
    auto work = world.all_reduce(std::span(numbers), std::span(numbers), ReduceOp::sum, {.stream = stream});
    EXPECT_THROW(work.wait(), Error);
  });
  EXPECT_EQ(2, seen.started_);
  EXPECT_EQ(2, seen.finished_);
}

TEST(CallObserver, SeesTheBucketsOfDataParallel) {
  Seen seen;
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> weights(1000);
    DataParallel model(world, {std::span(weights)});
    model.mark_ready(0);
    model.finish();
  });
  EXPECT_EQ((Calls{{"all_reduce 4032", 2}}), seen.calls_);  // up to a whole line
}

TEST(CallObserver, SeesNothingOnceItIsGone) {
  { Seen const seen; }
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    std::vector<float> whole(8, 1.0F);
    world.all_reduce(std::span(whole), std::span(whole), ReduceOp::sum, {.stream = stream}).wait();
  });
}

}  // namespace
}  // namespace weft::test
