// Groups that are used wrongly, or differ between ranks: everybody is told, and nothing hangs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

void expect_words(Error const& error, std::vector<std::string> const& words) {
  std::string const what = error.what();
  for (auto const& word : words) EXPECT_NE(what.find(word), std::string::npos) << what << "\ndoes not say\n" << word;
}

TEST(Group, MisuseIsAnErrorAndHarmless) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 1;
    BufferView const one{&value, 1, DataType::f32};
    {
      Group group(world);
      auto const work = world.all_reduce(one, one, ReduceOp::sum);
      EXPECT_FALSE(work.test());
      EXPECT_THROW(work.wait(), Error);
      EXPECT_THROW(Group nested(world), Error);
      EXPECT_THROW(static_cast<void>(world.allocate(1, DataType::f32)), Error);
      EXPECT_THROW(static_cast<void>(world.split(0)), Error);
      EXPECT_THROW(world.all_reduce(one, one, ReduceOp::sum, {.stream = Stream::cpu()}), Error);
      EXPECT_THROW(world.broadcast(one, 7), Error);
      group.end();
      EXPECT_TRUE(work.test());
      work.wait();
      EXPECT_THROW(group.end(), Error);
    }
    EXPECT_EQ(value, 2);
    Work dropped;
    {
      Group group(world);
      dropped = world.all_reduce(one, one, ReduceOp::sum);
      world.send(one, 1 - world.rank());
    }
    EXPECT_THROW(dropped.wait(), Error);
    float got = 0;
    world.send_recv(one, 1 - world.rank(), {&got, 1, DataType::f32}, 1 - world.rank());
    EXPECT_EQ(got, 2);
    world.all_reduce(one, one, ReduceOp::sum);
    EXPECT_EQ(value, 4);
  });
}

/// Two calls made by `calls` depend on one another: end() says so and nothing runs.
template <typename Calls>
void expect_dependent(Communicator& world, Calls const& calls, std::string const& words) {
  Group group(world);
  calls();
  try {
    group.end();
    ADD_FAILURE() << "no error: " << words;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    expect_words(error, {"Group::end", words});
  }
}

TEST(Group, CallsThatDependOnOneAnotherAreErrors) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> a(20, 1);
    std::vector<float> b(40, 1);
    std::vector<float> c(2, 1);
    BufferView const first{std::span(a)};
    BufferView const second{std::span(b)};
    auto const sum = ReduceOp::sum;
    expect_dependent(
        world,
        [&] {
          world.all_reduce(first, first, sum);
          world.all_reduce(first, second.slice(0, 20), sum);
        },
        "call 2 (all_reduce) uses what call 1 (all_reduce) writes");
    expect_dependent(
        world,
        [&] {
          world.all_gather(first, second);
          world.barrier();
          world.reduce_scatter(second.slice(10, 4), BufferView(std::span(c)), sum);
        },
        "call 3 (reduce_scatter) uses what call 1 (all_gather) writes");
    expect_dependent(
        world,
        [&] {
          world.all_reduce(first.slice(0, 10), second.slice(30, 10), sum);
          world.all_to_all(first.slice(10, 10), second.slice(29, 10));
        },
        "writes, but calls of a group are independent");
    expect_dependent(
        world,
        [&] {
          world.send(first, 1 - world.rank());
          world.recv(first.slice(19, 1), 1 - world.rank());
        },
        "call 1 (send) uses what call 2 (recv) writes");
    if (world.rank() == 0) {  // in a broadcast only others write
      Group group(world);
      world.broadcast(first, 0);
      world.broadcast(first, 0);
      group.end();
    } else {
      std::vector<float> other(20);
      Group group(world);
      world.broadcast(BufferView(std::span(other)), 0);
      world.broadcast(second.slice(0, 20), 0);
      group.end();
      EXPECT_EQ(other, a);
    }
    EXPECT_EQ(a, std::vector<float>(20, 1)) << "nothing ran";
  });
}

TEST(Group, IndependentCallsMayLieInAnyOrder) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> values(60, 1);
    BufferView const all{std::span(values)};
    auto const expect_sums = [&](std::vector<std::array<std::size_t, 2>> const& calls) {  // from where to where
      std::fill(values.begin(), values.end(), 1.0F);
      Group group(world);
      for (auto const& [from, to] : calls) world.all_reduce(all.slice(from, 10), all.slice(to, 10), ReduceOp::sum);
      group.end();
      for (auto const& call : calls) {
        for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(values[call[1] + i], 2) << call[1] << " + " << i;
      }
    };
    expect_sums({{0, 0}, {10, 10}, {20, 20}});
    expect_sums({{50, 50}, {40, 40}, {30, 30}});
    expect_sums({{20, 20}, {0, 0}, {10, 10}});
    expect_sums({{0, 10}, {20, 30}, {40, 50}});
    expect_sums({{0, 30}, {0, 10}, {20, 40}});
    expect_sums({{0, 50}, {20, 30}, {10, 40}});
    expect_dependent(
        world,
        [&] {
          world.all_reduce(all.slice(40, 10), all.slice(50, 10), ReduceOp::sum);
          world.all_reduce(all.slice(20, 10), all.slice(30, 10), ReduceOp::sum);
          world.all_reduce(all.slice(0, 10), all.slice(15, 10), ReduceOp::sum);
        },
        "call 2 (all_reduce) uses what call 3 (all_reduce) writes");
  });
}

TEST(Group, CallsMayReadTheSameAndInterleaveParts) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> const mine(4, static_cast<float>(world.rank() + 1));
    std::vector<float> all(16);
    std::vector<std::size_t> const counts{4, 4};
    std::vector<std::size_t> const even{0, 8};
    std::vector<std::size_t> const odd{4, 12};
    ConstBufferView const send{std::span(mine)};
    Group group(world);
    world.all_gather(send, BufferView(std::span(all)), Parts{counts, even});
    world.all_gather(send, BufferView(std::span(all)), Parts{counts, odd});
    group.end();
    EXPECT_EQ(all, (std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2}));
  });
}

TEST(Group, MessagesToItselfThatDoNotMatchAreErrors) {
  CommunicatorOptions named;
  named.name = "world";
  run_thread_ranks(
      2,
      [](Communicator& world) {
        std::vector<float> data(20);
        auto const me = world.rank();
        auto const view = std::span(data);
        auto const expect_error = [&](auto const& calls, std::string const& words) {
          Group group(world);
          auto const work = calls();
          try {
            group.end();
            ADD_FAILURE() << "no error";
          } catch (Error const& error) {
            EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
            expect_words(error, {fmt::format("rank {} of world: Group::end, call ", me), words});
          }
          EXPECT_THROW(work.wait(), Error);
        };
        expect_error([&] { return world.send(std::span<float const>(data), me); },
                     "1 sent to itself, but 0 received from itself");
        expect_error(
            [&] {
              world.send(std::span<float const>(data).first(10), me);
              return world.recv(view.first(12), me);
            },
            "message 1 to itself is 10 × f32, but its recv expects 12 × f32");
        try {
          world.recv(view, me);
          ADD_FAILURE() << "no error";
        } catch (Error const& error) {
          expect_words(error, {fmt::format("rank {} of world: recv, point-to-point call 1", me), "in one Group"});
        }
        world.barrier();
      },
      named);
}

TEST(Group, ErrorsNameFunctionNumberAndCommunicator) {
  CommunicatorOptions named;
  named.name = "world";
  run_thread_ranks(
      2,
      [](Communicator& world) {
        float value = 1;
        BufferView const one{&value, 1, DataType::f32};
        world.barrier();
        auto const expect_error = [&](auto const& call, std::string const& function, std::string const& words) {
          try {
            call();
            ADD_FAILURE() << "no error for " << function;
          } catch (Error const& error) {
            expect_words(error, {fmt::format("rank {} of world: {}, call 2: ", world.rank(), function), words});
          }
        };
        expect_error([&] { Group group(world, {.timeout = std::chrono::milliseconds(-1)}); }, "Group", "timeout");
        Work dropped;
        {
          Group group(world);
          dropped = world.all_reduce(one, one, ReduceOp::sum);
          expect_error([&] { Group nested(world); }, "Group", "end it first");
          expect_error([&] { static_cast<void>(world.allocate(1, DataType::f32)); }, "allocate", "end it first");
          expect_error([&] { static_cast<void>(world.split(0)); }, "split", "end it first");
          expect_error([&] { static_cast<void>(world.duplicate(world.options())); }, "duplicate", "end it first");
          expect_error([&] { world.fuse(Stream::cpu()); }, "fuse", "end it first");
          expect_error([&] { world.all_reduce(one, one, ReduceOp::sum, {.stream = Stream::cpu()}); }, "all_reduce",
                       "give the stream to the Group");
        }
        expect_error([&] { dropped.wait(); }, "Group", "dropped before end()");
        Group ended(world);
        ended.end();
        expect_error([&] { ended.end(); }, "Group::end", "has ended before");
      },
      named);
}

/// Calls like the one before them are taken a shorter way, which must not let mistakes through.
TEST(Group, MistakesAfterGoodCallsOfTheirKindAreRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> send(64, 1);
    std::vector<float> recv(64);
    BufferView const from{std::span(send)};
    BufferView const to{std::span(recv)};
    BufferView const none{nullptr, 4, DataType::f32};
    BufferView const halves{recv.data(), 4, DataType::f16};
    BufferView const endless{recv.data() + 8, std::size_t{1} << 62U, DataType::f32};
    BufferView const elsewhere{recv.data() + 8, 4, DataType::f32, {DeviceType::cuda, 0}};
    auto const refused = [&](auto const& good, auto const& bad, std::string const& words) {
      Group group(world);
      good();
      good();
      try {
        bad();
        ADD_FAILURE() << "not refused: " << words;
      } catch (Error const& error) {
        expect_words(error, {words});
      }
    };
    auto const reduces = [&](BufferView const& a, BufferView const& b, Reduction const& how,
                             CollectiveOptions const& with) {
      return [&world, a, b, how, with] { world.all_reduce(a, b, how, with); };
    };
    auto const good = reduces(from.slice(0, 4), to.slice(0, 4), ReduceOp::sum, {});
    refused(good, reduces(none, to.slice(8, 4), ReduceOp::sum, {}), "null");
    refused(good, reduces(from.slice(8, 4), none, ReduceOp::sum, {}), "null");
    refused(good, reduces(from.slice(8, 4), to.slice(8, 5), ReduceOp::sum, {}), "4");
    refused(good, reduces(from.slice(8, 4), halves, ReduceOp::sum, {}), "f16");
    refused(good, reduces(to.slice(8, 4), to.slice(10, 4), ReduceOp::sum, {}), "overlap");
    refused(good, reduces(endless, endless, ReduceOp::sum, {}), "more than memory can hold");
    refused(good, reduces(from.slice(8, 4), elsewhere, ReduceOp::sum, {}), "cuda:0");
    refused(good, reduces(from.slice(8, 4), to.slice(8, 4), ReduceOp::band, {}), "band");
    refused(good, reduces(from.slice(8, 4), to.slice(8, 4), ReduceOp::sum, {.timeout = std::chrono::milliseconds(0)}),
            "timeout");
    refused(good, reduces(from.slice(8, 4), to.slice(8, 4), ReduceOp::sum, {.stream = Stream::cpu()}), "stream");
    refused([&] { world.reduce_scatter(from.slice(0, 8), to.slice(0, 4), ReduceOp::sum); },
            [&] { world.reduce_scatter(from.slice(8, 7), to.slice(8, 4), ReduceOp::sum); }, "reduce_scatter");
    refused([&] { world.reduce_scatter(from.slice(0, 8), to.slice(0, 4), ReduceOp::sum); },
            [&] { world.reduce_scatter(to.slice(8, 8), to.slice(15, 4), ReduceOp::sum); }, "overlap");
    refused([&] { world.all_gather(from.slice(0, 4), to.slice(0, 8)); },
            [&] { world.all_gather(from.slice(8, 4), to.slice(8, 9)); }, "all_gather");
    refused([&] { world.all_gather(from.slice(0, 4), to.slice(0, 8)); },
            [&] { world.all_gather(to.slice(14, 4), to.slice(8, 8)); }, "overlap");
    world.barrier();  // no group has run, and all can go on
    EXPECT_EQ(recv, std::vector<float>(64));
  });
}

/// Each rank's own scale or function is not for the others to know, so such calls stay apart, however alike.
TEST(Group, CallsWithScalesOfTheirOwnKeepThem) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> values{1, 1, 1, 1};
    BufferView const all{std::span(values)};
    Group group(world);
    for (std::size_t i = 0; i < values.size(); ++i) {
      world.all_reduce(all.slice(i, 1), all.slice(i, 1), Reduction::premul_sum(static_cast<double>(i + 1)));
    }
    group.end();
    EXPECT_EQ(values, (std::vector<float>{2, 4, 6, 8}));
  });
}

TEST(Group, RanksThatGroupDifferentlyAreToldSo) {
  for (int const ranks : {2, 3}) {
    for (std::size_t const count : {std::size_t{10}, std::size_t{100'000}}) {
      run_thread_ranks(ranks, [&](Communicator& world) {
        std::vector<float> values(3 * count, 1.0F);
        auto const part = [&](std::size_t first, std::size_t n) {
          return BufferView{values.data() + first, n, DataType::f32};
        };
        auto const own = world.rank() == 0 ? count : count + 1;  // equal in all, cut differently
        Group group(world);
        world.all_reduce(part(0, own), part(0, own), ReduceOp::sum);
        world.all_reduce(part(own, 2 * count - own), part(own, 2 * count - own), ReduceOp::sum);
        try {
          group.end();
          ADD_FAILURE() << "no mismatch";
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
          auto const merges = ranks == 2 || count == 10;
          if (merges) {
            expect_words(error, {"call 1 ", fmt::format("rank {} made group of 2 all_reduce calls ", world.rank()),
                                 fmt::format("({} × f32 in all, sum, sizes ", 2 * count), "as much in all"});
          }
        }
        world.barrier();  // still usable
      });
    }
  }
}

TEST(Group, MismatchesNameWhatBothSidesGave) {
  for (auto const& [ranks, count] : {std::pair<int, std::size_t>{2, 10}, {2, 200}, {3, 10}, {3, 200}}) {
    run_thread_ranks(ranks, [count = count](Communicator& world) {
      std::vector<double> values(4 * count, 1.0);
      auto const calls = world.rank() == 1 ? 4 : 3;
      auto const expect_mismatch = [](Group& group, std::vector<std::string> const& words) {
        try {
          group.end();
          ADD_FAILURE() << "no mismatch";
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::mismatch);
          expect_words(error, words);
        }
      };
      Group sums(world);
      for (int i = 0; i < calls; ++i) {
        BufferView const part{values.data() + static_cast<std::size_t>(i) * count, count, DataType::f64};
        world.all_reduce(part, part, ReduceOp::max);
      }
      expect_mismatch(sums, {fmt::format("group of 3 all_reduce calls ({} × f64 in all, max)", 3 * count),
                             fmt::format("group of 4 all_reduce calls ({} × f64 in all, max)", 4 * count)});
      Group barriers(world);
      for (int i = 0; i < calls; ++i) world.barrier();
      expect_mismatch(barriers, {"group of 3 barrier calls", "group of 4 barrier calls"});
      world.barrier();
    });
  }
}

}  // namespace
}  // namespace weft::test
