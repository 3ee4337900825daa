#include "collectives/emulated_link.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "collectives/validation.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

/// Calls as the ranks of a communicator of `size` make them, with buffers that nobody touches.
class Calls {
 public:
  Calls(int rank, int size) : rank_(rank), validator_{rank, size} {}

  [[nodiscard]] Call all_reduce(std::size_t count) const {
    return validator_.all_reduce(send(count), recv(count), ReduceOp::sum);
  }
  [[nodiscard]] Call reduce_scatter(std::size_t part) const {
    return validator_.reduce_scatter(send(size() * part), recv(part), ReduceOp::sum);
  }
  [[nodiscard]] Call all_gather(std::size_t part) const {
    return validator_.all_gather(send(part), recv(size() * part));
  }
  [[nodiscard]] Call reduce(std::size_t count, int root) const {
    return validator_.reduce(send(count), recv(count), ReduceOp::sum, root);
  }
  [[nodiscard]] Call broadcast(std::size_t count, int root) const { return validator_.broadcast(recv(count), root); }
  [[nodiscard]] Call scan(std::size_t count, bool inclusive) const {
    return validator_.scan(send(count), recv(count), ReduceOp::sum, inclusive);
  }
  [[nodiscard]] Call gather(std::size_t part, int root) const {
    return validator_.gather(send(part), recv(size() * part), root);
  }
  [[nodiscard]] Call scatter(std::size_t part, int root) const {
    return validator_.scatter(send(size() * part), recv(part), root);
  }
  [[nodiscard]] Call all_to_all(std::size_t part) const {
    return validator_.all_to_all(send(size() * part), recv(size() * part));
  }
  [[nodiscard]] Call reduce_scatter(std::vector<std::size_t> const& parts) const {
    return validator_.reduce_scatter(send(sum(parts)), recv(own(parts)), {parts}, ReduceOp::sum);
  }
  [[nodiscard]] Call all_gather(std::vector<std::size_t> const& parts) const {
    return validator_.all_gather(send(own(parts)), recv(sum(parts)), {parts});
  }
  [[nodiscard]] Call gather(std::vector<std::size_t> const& parts, int root) const {
    return validator_.gather(send(own(parts)), recv(sum(parts)), {parts}, root);
  }
  [[nodiscard]] Call scatter(std::vector<std::size_t> const& parts, int root) const {
    return validator_.scatter(send(sum(parts)), {parts}, recv(own(parts)), root);
  }
  [[nodiscard]] Call all_to_all(std::vector<std::size_t> const& sent, std::vector<std::size_t> const& received) const {
    return validator_.all_to_all(send(sum(sent)), {sent}, recv(sum(received)), {received});
  }
  [[nodiscard]] Call message(std::size_t sent, std::size_t received) const {
    return validator_.send_recv(send(sent), rank_, recv(received), rank_);
  }

  static std::size_t sum(std::vector<std::size_t> const& parts) {
    return std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  }
  [[nodiscard]] std::size_t own(std::vector<std::size_t> const& parts) const {
    return parts.at(static_cast<std::size_t>(rank_));
  }

 private:
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(validator_.size); }
  // Far apart, and never read: validation looks at addresses only.
  static ConstBufferView send(std::size_t count) { return {reinterpret_cast<void*>(0x1000'0000'0000), count, kType}; }
  static BufferView recv(std::size_t count) { return {reinterpret_cast<void*>(0x2000'0000'0000), count, kType}; }

  static constexpr DataType kType = DataType::f32;
  int rank_;
  Validator validator_;
};

/// Microseconds over a link of 10 µs and 1 GB/s.
double microseconds(Call const& call, int rank, int ranks) {
  EmulatedLink const link{10us, 1e9};
  return std::chrono::duration<double, std::micro>(link_time(link, call, rank, ranks)).count();
}

TEST(EmulatedLink, FollowsTheRingFormulas) {
  // 4 ranks; 1'000'000 bytes are 1000 µs, a part of 250'000 bytes is 250 µs.
  for (int rank = 0; rank < 4; ++rank) {
    Calls const calls(rank, 4);
    auto const time = [&](Call const& call) { return microseconds(call, rank, 4); };
    EXPECT_DOUBLE_EQ(time(calls.all_reduce(250'000)), 60 + 2 * 750);
    EXPECT_DOUBLE_EQ(time(calls.reduce_scatter(62'500)), 30 + 750);
    EXPECT_DOUBLE_EQ(time(calls.all_gather(62'500)), 30 + 750);
    EXPECT_DOUBLE_EQ(time(calls.broadcast(250'000, 2)), 30 + 1000);
    EXPECT_DOUBLE_EQ(time(calls.reduce(250'000, 2)), 30 + 1000);
    EXPECT_DOUBLE_EQ(time(calls.scan(250'000, true)), 30 + 1000);
    EXPECT_DOUBLE_EQ(time(calls.scan(250'000, false)), 30 + 1000);
    EXPECT_DOUBLE_EQ(time(calls.gather(62'500, 2)), 30 + 750);
    EXPECT_DOUBLE_EQ(time(calls.scatter(62'500, 2)), 30 + 750);
    EXPECT_DOUBLE_EQ(time(calls.all_to_all(62'500)), 30 + 750);
    EXPECT_DOUBLE_EQ(time(calls.message(250'000, 10)), 10 + 1000);
    EXPECT_DOUBLE_EQ(time(calls.message(10, 250'000)), 10 + 1000);
  }
}

TEST(EmulatedLink, ABarrierIsATreeUpAndDown) {
  Call const barrier{.contract = {.operation = Operation::barrier, .dtype = DataType::u8}};
  std::vector<double> const levels{0, 1, 2, 2, 3, 3, 3, 3, 4};  // of 1 to 9 ranks
  for (int ranks = 1; ranks <= 9; ++ranks) {
    EXPECT_DOUBLE_EQ(microseconds(barrier, 0, ranks), 20 * levels[static_cast<std::size_t>(ranks) - 1]) << ranks;
  }
}

TEST(EmulatedLink, OneRankHasNoLink) {
  Calls const alone(0, 1);
  std::vector<std::size_t> const all{1000};  // outlives the calls, which refer to it
  for (Call const& call :
       {alone.all_reduce(1000), alone.reduce_scatter(1000), alone.all_gather(1000), alone.broadcast(1000, 0),
        alone.reduce(1000, 0), alone.scan(1000, true), alone.gather(1000, 0), alone.scatter(1000, 0),
        alone.all_to_all(1000), alone.reduce_scatter(all), alone.all_gather(all), alone.gather(all, 0),
        alone.scatter(all, 0), alone.all_to_all(all, all)}) {
    EXPECT_EQ(microseconds(call, 0, 1), 0) << describe(call.contract);
  }
}

/// Random unequal parts, some of them empty; seeded.
class EmulatedLinkParts : public testing::TestWithParam<unsigned> {
 protected:
  std::vector<std::size_t> parts_of(int ranks) {
    std::vector<std::size_t> parts(static_cast<std::size_t>(ranks));
    for (auto& part : parts) part = random_() % 4 == 0 ? 0 : random_() % 100'000;
    return parts;
  }

  std::mt19937 random_{GetParam()};
};

TEST_P(EmulatedLinkParts, RanksThatKnowAllPartsAgree) {
  int const ranks = 2 + static_cast<int>(random_() % 8);
  auto const parts = parts_of(ranks);
  auto const bytes = 4.0 * static_cast<double>(Calls::sum(parts));
  double const expected = 10.0 * (ranks - 1) + (ranks - 1.0) / ranks * bytes / 1000;
  for (int rank = 0; rank < ranks; ++rank) {
    Calls const calls(rank, ranks);
    EXPECT_NEAR(microseconds(calls.reduce_scatter(parts), rank, ranks), expected, 0.002);
    EXPECT_NEAR(microseconds(calls.all_gather(parts), rank, ranks), expected, 0.002);
  }
}

TEST_P(EmulatedLinkParts, OthersCountWhatTheyKnow) {
  int const ranks = 2 + static_cast<int>(random_() % 8);
  int const root = static_cast<int>(random_() % static_cast<unsigned>(ranks));
  auto const parts = parts_of(ranks);
  auto const received = parts_of(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    Calls const calls(rank, ranks);
    double sent_to_others = 0;
    double received_from_others = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      sent_to_others += 4.0 * static_cast<double>(parts[static_cast<std::size_t>(peer)]);
      received_from_others += 4.0 * static_cast<double>(received[static_cast<std::size_t>(peer)]);
    }
    double const rooted = rank == root ? sent_to_others : 4.0 * (ranks - 1) * static_cast<double>(calls.own(parts));
    double const latencies = 10.0 * (ranks - 1);
    EXPECT_NEAR(microseconds(calls.gather(parts, root), rank, ranks), latencies + rooted / 1000, 0.002);
    EXPECT_NEAR(microseconds(calls.scatter(parts, root), rank, ranks), latencies + rooted / 1000, 0.002);
    EXPECT_NEAR(microseconds(calls.all_to_all(parts, received), rank, ranks),
                latencies + std::max(sent_to_others, received_from_others) / 1000, 0.002);
  }
}

TEST_P(EmulatedLinkParts, EqualPartsLastAsTheEqualForm) {
  int const ranks = 1 + static_cast<int>(random_() % 9);
  std::size_t const part = random_() % 100'000;
  std::vector<std::size_t> const parts(static_cast<std::size_t>(ranks), part);
  for (int rank = 0; rank < ranks; ++rank) {
    Calls const calls(rank, ranks);
    auto const expect_equal = [&](Call const& unequal, Call const& equal) {
      EXPECT_NEAR(microseconds(unequal, rank, ranks), microseconds(equal, rank, ranks), 0.002)
          << describe(equal.contract);
    };
    expect_equal(calls.reduce_scatter(parts), calls.reduce_scatter(part));
    expect_equal(calls.all_gather(parts), calls.all_gather(part));
    expect_equal(calls.gather(parts, 0), calls.gather(part, 0));
    expect_equal(calls.scatter(parts, 0), calls.scatter(part, 0));
    expect_equal(calls.all_to_all(parts, parts), calls.all_to_all(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EmulatedLinkParts, testing::Range(1U, 41U));

TEST(EmulatedLink, ParsesAndRejects) {
  auto const link = EmulatedLink::parse("20us:2GB/s");
  EXPECT_EQ(20us, link.latency);
  EXPECT_DOUBLE_EQ(2e9, link.bytes_per_second);
  for (auto const* text : {"", "20us", "20us:", ":2GB/s", "20us:2", "20us:-2GB/s", "20us:0GB/s", "x:2GB/s",
                           "20us:2GB/sx", "20us:nanGB/s"}) {
    EXPECT_THROW(static_cast<void>(EmulatedLink::parse(text)), Error) << text;
  }
}

TEST(EmulatedLink, AllRanksHaveOneOrNone) {
  run_thread_ranks(3, [](Communicator& world) {
    CommunicatorOptions options = world.options();
    if (world.rank() == 2) options.emulated_link = EmulatedLink::parse("1us:1GB/s");
    expect_error(ErrorCode::mismatch, {"rank 2 has an emulated_link, rank 0 none"},
                 [&] { (void)world.duplicate(options); });
    world.barrier();  // it goes on
  });
}

TEST(EmulatedLink, CollectivesLastAtLeastTheFormula) {
  CommunicatorOptions options;
  options.emulated_link = EmulatedLink{200us, 1e8};
  run_thread_ranks(
      2,
      [](Communicator& world) {
        auto buffer = world.allocate(250'000, DataType::f32);
        auto const start = std::chrono::steady_clock::now();
        for (int i = 0; i < 3; ++i) world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
        EXPECT_GE(std::chrono::steady_clock::now() - start, 3 * (400us + 10'000us));
      },
      options);
}

TEST(EmulatedLink, EveryOperationLastsAtLeastItsFormula) {
  CommunicatorOptions options;
  options.emulated_link = EmulatedLink{1ms, 1e8};
  run_thread_ranks(
      3,
      [](Communicator& world) {
        std::vector<float> a(30'000);
        std::vector<float> b(30'000);
        std::span<float const> const send(a);
        std::span<float> const recv(b);
        auto const part = recv.first(10'000);  // 400 µs
        auto const expect_at_least = [&](std::chrono::microseconds least, auto const& call) {
          auto const start = std::chrono::steady_clock::now();
          call();
          EXPECT_GE(std::chrono::steady_clock::now() - start, least);
        };
        expect_at_least(2800us, [&] { world.gather(part, recv, 0); });
        expect_at_least(2800us, [&] { world.scatter(send, part, 0); });
        expect_at_least(2800us, [&] { world.all_to_all(send, recv); });
        expect_at_least(3200us, [&] { world.broadcast(recv, 1); });
        expect_at_least(3200us, [&] { world.reduce(send, recv, ReduceOp::sum, 1); });
        expect_at_least(3200us, [&] { world.scan(send, recv, ReduceOp::sum); });
        expect_at_least(4000us, [&] { world.barrier(); });
      },
      options);
}

}  // namespace
}  // namespace weft::test
