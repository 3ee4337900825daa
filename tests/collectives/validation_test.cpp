#include <gtest/gtest.h>

#include "harness/ranks.hpp"

namespace weft::test {
namespace {

/// Runs `body`, which must throw an Error of `code` whose message holds every one of `words`.
template <typename Body>
void expect_error(ErrorCode code, std::vector<std::string> const& words, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown, expected " << to_string(code);
  } catch (Error const& error) {
    EXPECT_EQ(code, error.code()) << error.what();
    for (auto const& word : words) EXPECT_NE(std::string::npos, std::string(error.what()).find(word)) << error.what();
    EXPECT_EQ(std::string::npos, std::string(error.what()).find('\n'));
  }
}

TEST(Validation, CallerMistakesAreNamedAndNothingIsSent) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> a(8);
    std::vector<float> b(8);
    std::vector<double> d(8);
    std::span<float> const sa(a);
    std::span<float> const sb(b);
    auto const code = ErrorCode::invalid_argument;
    expect_error(code, {"all_reduce", "8", "7", "rank"}, [&] { world.all_reduce(sa, sb.first(7), ReduceOp::sum); });
    expect_error(code, {"f32", "f64"}, [&] { world.all_reduce(sa, std::span(d), ReduceOp::sum); });
    expect_error(code, {"overlap"}, [&] { world.all_reduce(sa.first(4), sa.subspan(1, 4), ReduceOp::sum); });
    expect_error(code, {"null"}, [&] { world.all_reduce(sa, {nullptr, 8, DataType::f32}, ReduceOp::sum); });
    expect_error(code, {"data type"}, [&] {
      auto const bad = static_cast<DataType>(99);
      world.all_reduce({a.data(), 8, bad}, {b.data(), 8, bad}, ReduceOp::sum);
    });
    expect_error(code, {"reduce op"}, [&] { world.all_reduce(sa, sb, static_cast<ReduceOp>(42)); });
    expect_error(code, {"reduce_scatter", "send has 8"}, [&] { world.reduce_scatter(sa, sb.first(5), ReduceOp::sum); });
    expect_error(code, {"all_gather", "recv has 8"}, [&] { world.all_gather(sa.first(3), sb); });
    expect_error(code, {"broadcast", "root 2"}, [&] { world.broadcast(sa, 2); });
    expect_error(code, {"broadcast", "root -1"}, [&] { world.broadcast(sa, -1); });
    expect_error(ErrorCode::unsupported, {"cuda"}, [&] {
      world.broadcast({a.data(), 8, DataType::f32, {DeviceType::cuda, 0}}, 0);
    });
    // Nothing was sent: the communicator still works.
    a.assign(8, 1.0F);
    world.all_reduce(sa, sb, ReduceOp::sum);
    EXPECT_EQ(std::vector<float>(8, 2.0F), b);
  });
}

TEST(Validation, InPlaceNoOtherPartSharesTheOneThatIsOverwritten) {
  run_thread_ranks(3, [](Communicator& world) {
    auto const rank = static_cast<std::size_t>(world.rank());
    std::vector<float> send(12, 1.0F);
    std::vector<float> apart(4);
    std::vector<std::size_t> const counts(3, 4);
    std::vector<std::size_t> offsets{0, 2, 4};
    auto const own = [&] { return std::span(send).subspan(offsets[rank], 4); };
    auto const reduce_into = [&](std::span<float> recv) {
      world.reduce_scatter(std::span<float const>(send), recv, {counts, offsets}, ReduceOp::sum);
    };
    expect_error(ErrorCode::invalid_argument, {"reduce_scatter", "in place", "overlaps"}, [&] { reduce_into(own()); });
    reduce_into(apart);
    EXPECT_EQ(std::vector<float>(4, 3.0F), apart);
    offsets = {0, 2, 8};  // rank 2's part lies by itself
    auto const result = rank == 2 ? own() : std::span(apart);
    reduce_into(result);
    EXPECT_EQ(std::vector<float>(4, 3.0F), std::vector<float>(result.begin(), result.end()));
  });
}

TEST(Validation, CallsThatDifferBetweenRanksNameBothAndLeaveTheCommunicatorUsable) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<float> a(100'000, 1.0F);
    std::vector<double> d(100'000, 1.0);
    std::span<float> const sa(a);
    auto const odd = world.rank() == 1;
    auto const code = ErrorCode::mismatch;
    for (std::size_t const count : {4, 1000, 100'000}) {  // inline, staged and negotiated paths
      expect_error(code, {"all_reduce", "rank 1", "×"}, [&] {
        auto const mine = sa.first(odd ? count - 1 : count);
        world.all_reduce(mine, mine, ReduceOp::sum);
      });
      expect_error(code, {"f64"}, [&] {
        if (odd)
          world.all_reduce(std::span(d).first(count), std::span(d).first(count), ReduceOp::sum);
        else
          world.all_reduce(sa.first(count), sa.first(count), ReduceOp::sum);
      });
      expect_error(code, {"max"},
                   [&] { world.all_reduce(sa.first(count), sa.first(count), odd ? ReduceOp::max : ReduceOp::sum); });
      expect_error(code, {"barrier"}, [&] {
        if (odd)
          world.barrier();
        else
          world.all_reduce(sa.first(count), sa.first(count), ReduceOp::sum);
      });
    }
    EXPECT_EQ(std::vector<float>(100'000, 1.0F), a) << "data was consumed";
    for (std::size_t const count : {4, 1000, 100'000}) {
      std::fill(a.begin(), a.end(), 1.0F);
      world.all_reduce(sa.first(count), sa.first(count), ReduceOp::sum);
      EXPECT_EQ(3.0F, a[count - 1]);
    }
  });
}

// A root does not wait for the others: all know of the difference by the next call, and the communicator has failed.
TEST(Validation, RootsThatDifferFailTheCommunicatorByTheNextCall) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<float> a(100'000, 1.0F);
    for (std::size_t const count : {4, 1000}) {
      auto once = world.duplicate({});
      auto const call_and_meet = [&] {
        once.broadcast(std::span(a).first(count), world.rank() == 1 ? 1 : 0);
        once.barrier();
      };
      expect_error(ErrorCode::mismatch, {"call 1 ", "rank 1 made broadcast(", "root 0", "root 1"}, call_and_meet);
      expect_error(ErrorCode::mismatch, {"call 1 ", "root 0", "root 1"}, [&] { once.barrier(); });
    }
  });
}

// Nobody reads what these ranks give, who never meet again either, until their feeds are full.
TEST(Validation, RanksThatOnlyGiveFindOutTheyDiffer) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 1;
    expect_error(ErrorCode::mismatch, {"call 1 ", "root 0", "root 1"}, [&] {
      for (int i = 0; i < 200; ++i) world.broadcast(std::span(&value, 1), world.rank());
    });
  });
}

// A call that some rank left out is found at the next that all make, and named.
TEST(Validation, ACallThatOneRankLeavesOutIsNamed) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 1;
    std::span<float> const one(&value, 1);
    expect_error(ErrorCode::mismatch, {"call 2 ", "rank 0 made broadcast(1 × f32, root 0)", "rank 1 made all_reduce("},
                 [&] {
                   world.barrier();
                   if (world.rank() == 0) world.broadcast(one, 0);
                   world.all_reduce(one, one, ReduceOp::sum);
                 });
  });
}

}  // namespace
}  // namespace weft::test
