#include <gtest/gtest.h>

#include <future>

#include "collectives/shm/fd_passing.hpp"
#include "collectives/shm/segment.hpp"
#include "collectives/shm/symmetric_heap.hpp"
#include "harness/ranks.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace weft::test {
namespace {

TEST(SymmetricMemory, IsZeroFilledSeparatePerRankAndOutlivesTheCommunicator) {
  run_thread_ranks(3, [](Communicator& world) {
    Buffer kept;
    {
      auto inner = world.duplicate({});
      kept = inner.allocate(100'000, DataType::i32);
    }
    for (auto const value : kept.as<std::int32_t>()) ASSERT_EQ(0, value);
    for (auto& value : kept.as<std::int32_t>()) value = world.rank();
    world.barrier();
    for (auto const value : kept.as<std::int32_t>()) ASSERT_EQ(world.rank(), value);
  });
}

TEST(SymmetricMemory, ReleasedBuffersAreNotMistakenForNewOnes) {
  run_thread_ranks(2, [](Communicator& world) {
    constexpr std::size_t kCount = 300'000;
    for (int round = 0; round < 6; ++round) {
      auto buffer = world.allocate(kCount, DataType::f32);
      if (world.rank() == round % 2) buffer = Buffer::host(kCount, DataType::f32);  // may reuse the address
      for (auto& value : buffer.as<float>()) value = 2.0F;
      world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
      ASSERT_EQ(4.0F, buffer.as<float>()[kCount - 1]);
    }
  });
}

TEST(SymmetricMemory, ExhaustionIsAnErrorOnEveryRank) {
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    try {
      static_cast<void>(world.allocate(std::size_t{1} << 46U, DataType::u8));
      return 1;
    } catch (Error const& error) {
      if (error.code() != ErrorCode::out_of_memory) return 2;
      if (std::string(error.what()).find("bytes") == std::string::npos) return 3;
    }
    auto small = world.allocate(1000, DataType::f32);  // the communicator still works
    world.all_reduce(small.view(), small.view(), ReduceOp::sum);
    return 0;
  });
  expect_all_succeeded(exits);
}

TEST(SymmetricMemory, OnlyTheRootsIsLeft) {
  constexpr std::size_t kCount = 200'000;
  auto const exits = run_forked_ranks(3, [](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    auto shared = world.allocate(ranks * kCount, DataType::f32);
    if (world.rank() != 1) shared = Buffer();  // rank 1 keeps what nobody else holds any more
    auto mine = Buffer::host(ranks * kCount, DataType::f32);
    auto const part = [](Buffer const& buffer, std::size_t count) {
      return BufferView{buffer.view().data, count, DataType::f32};
    };
    std::fill_n(static_cast<float*>(mine.view().data), kCount, static_cast<float>(world.rank()));
    auto const result = world.rank() == 1 ? shared.view() : BufferView{nullptr, 0, DataType::f32};
    world.gather(part(mine, kCount), result, 1);
    if (world.rank() == 1 && static_cast<float const*>(result.data)[2 * kCount + 7] != 2.0F) return 1;
    world.scatter(result, part(mine, kCount), 1);
    if (static_cast<float const*>(mine.view().data)[kCount - 1] != static_cast<float>(world.rank())) return 2;
    auto const sum = world.rank() == 1 ? part(shared, kCount) : BufferView{nullptr, 0, DataType::f32};
    world.reduce(part(mine, kCount), sum, ReduceOp::sum, 1);
    if (world.rank() == 1 && static_cast<float const*>(sum.data)[5] != 3.0F) return 3;
    return 0;
  });
  expect_all_succeeded(exits);
}

TEST(FdPassing, DeliversTheDescriptorToThoseWhoKnowTheToken) {
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  std::promise<void> listening;
  auto sender = std::async(std::launch::async,
                           [&] { return shm::send_descriptor(ends[1], 4242, 1, [&] { listening.set_value(); }); });
  listening.get_future().wait();
  int error = 0;
  int const received = shm::receive_descriptor(4242, error);
  ASSERT_GE(received, 0) << error;
  EXPECT_EQ(0, sender.get());
  ASSERT_EQ(1, ::write(received, "x", 1));
  char byte = 0;
  ASSERT_EQ(1, ::read(ends[0], &byte, 1));
  EXPECT_EQ('x', byte);
  EXPECT_EQ(-1, shm::receive_descriptor(4243, error)) << "nobody listens under another token";
  for (int const fd : {ends[0], ends[1], received}) ::close(fd);
}

}  // namespace
}  // namespace weft::test
