// Sends and receives in groups: in any order, many of them, and of a rank to itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

TEST(Group, MessagesOfAnySizeInAnyOrder) {
  run_thread_ranks(3, [](Communicator& world) {
    constexpr std::size_t kCount = 300'000;
    auto const ranks = static_cast<std::size_t>(world.size());
    std::vector<std::int32_t> out(ranks * kCount);
    std::vector<std::int32_t> in(ranks * kCount);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int32_t>(i) + 10'000'000 * world.rank();
    auto const part = [&](std::vector<std::int32_t>& all, int peer) {
      return BufferView{all.data() + static_cast<std::size_t>(peer) * kCount, kCount, DataType::i32};
    };
    for (int round = 0; round < 3; ++round) {
      Group group(world);
      for (int peer = 0; peer < world.size(); ++peer) {
        if (peer != world.rank()) world.send(part(out, peer), peer);
      }
      for (int peer = world.size(); peer-- > 0;) {
        if (peer != world.rank()) world.recv(part(in, peer), peer);
      }
      group.end();
      for (int peer = 0; peer < world.size(); ++peer) {
        if (peer == world.rank()) continue;
        auto const first = in[static_cast<std::size_t>(peer) * kCount + 17];
        EXPECT_EQ(first, static_cast<std::int32_t>(kCount) * world.rank() + 17 + 10'000'000 * peer);
      }
    }
    // Several to one peer arrive in order, and collectives in the same group do not mind.
    std::int32_t const first = 1;
    std::int32_t const second = 2;
    std::int32_t got[2] = {0, 0};
    std::int32_t sum = 1;
    auto const next = (world.rank() + 1) % world.size();
    auto const before = (world.rank() + world.size() - 1) % world.size();
    Group group(world);
    world.send({&first, 1, DataType::i32}, next);
    world.all_reduce({&sum, 1, DataType::i32}, {&sum, 1, DataType::i32}, ReduceOp::sum);
    world.send({&second, 1, DataType::i32}, next);
    world.recv({&got[0], 1, DataType::i32}, before);
    world.recv({&got[1], 1, DataType::i32}, before);
    group.end();
    EXPECT_EQ(got[0], 1);
    EXPECT_EQ(got[1], 2);
    EXPECT_EQ(sum, world.size());
  });
}

TEST(Group, ThousandsOfMessages) {
  run_thread_ranks(2, [](Communicator& world) {
    constexpr int kMessages = 20'000;
    std::vector<std::int32_t> out(kMessages);
    std::vector<std::int32_t> in(kMessages);
    for (int i = 0; i < kMessages; ++i) out[static_cast<std::size_t>(i)] = i + world.rank();
    Group group(world);
    for (std::size_t i = 0; i < kMessages; ++i) {
      world.send({&out[i], 1, DataType::i32}, 1 - world.rank());
      world.recv({&in[i], 1, DataType::i32}, 1 - world.rank());
    }
    group.end();
    for (int i = 0; i < kMessages; ++i) ASSERT_EQ(in[static_cast<std::size_t>(i)], i + 1 - world.rank());
  });
}

/// All to all by sends and receives, each rank's part to itself too.
TEST(Group, ARankSendsToItself) {
  for (int const ranks : {1, 2, 3}) {
    for (std::size_t const count : {std::size_t{1}, std::size_t{300'000}}) {
      run_thread_ranks(ranks, [&](Communicator& world) {
        auto const n = static_cast<std::size_t>(ranks);
        std::vector<std::int32_t> out(n * count);
        std::vector<std::int32_t> in(n * count, -1);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int32_t>(i) + 10'000'000 * world.rank();
        for (bool const on_stream : {false, true}) {
          CollectiveOptions how;
          if (on_stream) how.stream = Stream::cpu();
          std::fill(in.begin(), in.end(), -1);
          Group group(world, how);
          for (int peer = 0; peer < ranks; ++peer) {
            auto const first = static_cast<std::size_t>(peer) * count;
            world.send({out.data() + first, count, DataType::i32}, peer);
            world.recv({in.data() + first, count, DataType::i32}, peer);
          }
          group.end().wait();
          for (std::size_t i = 0; i < in.size(); ++i) {
            auto const sender = static_cast<int>(i / count);
            auto const place = static_cast<std::size_t>(world.rank()) * count + i % count;
            ASSERT_EQ(in[i], static_cast<std::int32_t>(place) + 10'000'000 * sender);
          }
        }
      });
    }
  }
}

TEST(Group, MessagesToItselfGoInOrder) {
  run_thread_ranks(2, [](Communicator& world) {
    std::int32_t values[4] = {1, 2, 3, 4};
    std::int32_t got[3] = {0, 0, 0};
    auto const one = [](std::int32_t& value) { return BufferView{&value, 1, DataType::i32}; };
    auto const me = world.rank();
    Group group(world);
    auto const first = world.recv(one(got[0]), me);
    world.recv(one(got[1]), me);
    world.send_recv(one(values[0]), me, one(got[2]), me);
    world.send(one(values[1]), me);
    world.send({nullptr, 0, DataType::f64}, me);
    world.recv({nullptr, 0, DataType::f64}, me);
    world.send(one(values[2]), me);
    EXPECT_THROW(group.end(), Error);  // the third send is of another type than the third recv
    EXPECT_THROW(first.wait(), Error);
    Group again(world);
    world.recv(one(got[0]), me);
    world.recv(one(got[1]), me);
    world.send_recv(one(values[0]), me, one(got[2]), me);
    world.send(one(values[1]), me);
    world.send(one(values[2]), me);
    world.send(one(values[3]), me);
    world.recv(one(values[3]), me);  // in place
    again.end();
    EXPECT_EQ(got[0], 1);
    EXPECT_EQ(got[1], 2);
    EXPECT_EQ(got[2], 3);
    EXPECT_EQ(values[3], 4);
  });
}

}  // namespace
}  // namespace weft::test
