// What a planned step takes from the heap, counted by an operator new of this program.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "harness/ranks.hpp"
#include "scheduler/small_step.hpp"
#include "weft/fixed_schedule.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have operators of their own

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> pieces{0};
std::atomic<std::size_t> bytes{0};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (counting.load(std::memory_order_relaxed)) {
    ++pieces;
    bytes += size;
  }
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace weft::test {
namespace {

struct Taken {
  std::size_t pieces = 0;
  std::size_t bytes = 0;
  std::size_t sent = 0;  ///< launches that are sent, by all ranks
};

/// By both ranks and all their streams, in one step after the one that planned again.
Taken taken_by_a_step(std::vector<std::size_t> const& sizes, std::int64_t bucket_bytes) {
  Taken taken;
  run_thread_ranks(2, [&](Communicator& world) {
    SmallStep small(world.rank(), world.size(), sizes);
    PlanExecutor executor(world, small.graph, small.bindings,
                          {.cluster = slow_cluster(world.size()),
                           .planner = [=](auto const& g, auto const& m) { return bucket_schedule(g, m, bucket_bytes); },
                           .profile_steps = 1});
    small.executor = &executor;
    for (int step = 0; step < 4; ++step) small.step();
    EXPECT_TRUE(executor.is_measured());
    world.barrier();
    if (world.rank() == 0) {
      pieces = bytes = 0;
      counting = true;
    }
    world.barrier();
    small.step();
    world.barrier();
    if (world.rank() != 0) return;
    counting = false;
    taken = {pieces, bytes, 0};
    for (Launch const& launch : executor.plan().launches) {
      taken.sent += launch.resource == Resource::compute ? 0 : static_cast<std::size_t>(world.size());
    }
  });
  return taken;
}

/// What a launch that is sent costs is the stream's: what is enqueued, its operation, the Work.
constexpr std::size_t kPiecesOfALaunch = 4;
constexpr std::size_t kBytesOfALaunch = 1000;

TEST(PlanExecutorAllocations, NoneButWhatEnqueueingDoes) {
  for (std::int64_t const bucket_bytes : {std::int64_t{1}, std::int64_t{1} << 30}) {
    for (std::size_t const layers : {8, 32}) {
      for (std::size_t const size : {100, 100'000}) {
        SCOPED_TRACE(testing::Message() << layers << " layers of " << size << ", buckets of " << bucket_bytes);
        Taken const taken = taken_by_a_step(std::vector<std::size_t>(layers, size), bucket_bytes);
        EXPECT_EQ(taken.sent, bucket_bytes == 1 ? 2 * layers : 2);
        EXPECT_LE(taken.pieces, kPiecesOfALaunch * taken.sent);
        EXPECT_LE(taken.bytes, kBytesOfALaunch * taken.sent);
      }
    }
  }
}

}  // namespace
}  // namespace weft::test

#endif
