// Groups and fused streams give, bit for bit, what the same calls give by themselves; and nothing hangs where ranks
// group differently.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "collectives/reference.hpp"
#include "harness/ranks.hpp"
#include "runtime/stream_impl.hpp"

namespace weft::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kCases = 8;
#else
constexpr int kCases = 40;
#endif
constexpr std::size_t kSizes[] = {0, 1, 3, 14, 100, 257, 1009, 5003, 20011, 90001};

enum class Kind {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  scatter,
  all_to_all,
  scan,
  exscan,
  barrier
};
constexpr int kKinds = 11;

struct Shapes {
  std::size_t send;
  std::size_t recv;
};

/// One call with buffers of its own: [send | recv] in `arena`.
struct Planned {
  Kind kind = Kind::barrier;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::size_t count = 0;
  bool in_place = false;

  [[nodiscard]] Shapes shapes(int ranks) const {
    auto const n = static_cast<std::size_t>(ranks) * count;
    switch (kind) {
      case Kind::reduce_scatter:
      case Kind::scatter: return {n, count};
      case Kind::all_gather:
      case Kind::gather: return {count, n};
      case Kind::all_to_all: return {n, n};
      case Kind::barrier: return {0, 0};
      default: return {count, count};
    }
  }
};

class Plan {
 public:
  explicit Plan(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(engine_); }
  bool coin() { return below(2) == 1; }

  /// Calls of few kinds, so that many merge.
  std::vector<Planned> calls(int ranks) {
    std::vector<Planned> kinds(1 + below(3));
    for (auto& call : kinds) {
      call.kind = static_cast<Kind>(below(kKinds));
      call.dtype = kAllTypes[below(std::size(kAllTypes))];
      call.op = kAllOps[below(std::size(kAllOps))];
      if (!supports(call.dtype, call.op)) call.op = ReduceOp::prod;
      if ((call.kind == Kind::scan || call.kind == Kind::exscan) && call.op == ReduceOp::avg) call.op = ReduceOp::prod;
      call.root = static_cast<int>(below(static_cast<std::size_t>(ranks)));
    }
    auto const most = 1 + below(std::size(kSizes));
    std::vector<Planned> result(1 + below(20));
    for (auto& call : result) {
      call = kinds[below(kinds.size())];
      call.count = kSizes[below(most)];
      call.in_place = call.kind == Kind::all_reduce && coin();
    }
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

/// Room for the buffers of `calls`, filled alike for one seed.
std::size_t arena_bytes(std::vector<Planned> const& calls, int ranks) {
  std::size_t bytes = 64;
  for (auto const& call : calls) {
    auto const shapes = call.shapes(ranks);
    bytes += (shapes.send + shapes.recv) * size_of(call.dtype) + 128;
  }
  return bytes;
}

std::byte* take(std::byte*& next, std::size_t bytes, std::size_t misalign) {
  auto* const start = next + misalign;
  next += (bytes + misalign + 15) / 16 * 16;
  return start;
}

std::vector<Work> make_calls(Communicator& world, std::vector<Planned> const& calls, std::byte* arena,
                             std::uint64_t seed, CollectiveOptions const& how) {
  auto* next = arena;
  std::vector<Work> works;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    auto const& call = calls[i];
    auto const shapes = call.shapes(world.size());
    auto const element = size_of(call.dtype);
    BufferView const send{take(next, shapes.send * element, i % 3 == 0 ? element : 0), shapes.send, call.dtype};
    BufferView recv{take(next, shapes.recv * element, 0), shapes.recv, call.dtype};
    if (call.in_place) recv = send;
    store_values(make_values(shapes.send, call.dtype, call.op, world.rank(), seed + i), send);
    switch (call.kind) {
      case Kind::all_reduce: works.push_back(world.all_reduce(send, recv, call.op, how)); break;
      case Kind::reduce: works.push_back(world.reduce(send, recv, call.op, call.root, how)); break;
      case Kind::reduce_scatter: works.push_back(world.reduce_scatter(send, recv, call.op, how)); break;
      case Kind::all_gather: works.push_back(world.all_gather(send, recv, how)); break;
      case Kind::broadcast: works.push_back(world.broadcast(send, call.root, how)); break;
      case Kind::gather: works.push_back(world.gather(send, recv, call.root, how)); break;
      case Kind::scatter: works.push_back(world.scatter(send, recv, call.root, how)); break;
      case Kind::all_to_all: works.push_back(world.all_to_all(send, recv, how)); break;
      case Kind::scan: works.push_back(world.scan(send, recv, call.op, how)); break;
      case Kind::exscan: works.push_back(world.exscan(send, recv, call.op, how)); break;
      case Kind::barrier: works.push_back(world.barrier(how)); break;
    }
  }
  return works;
}

void compare_with_single_calls(int ranks, std::uint64_t seed, bool on_stream) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed << ", on_stream " << on_stream);
  run_thread_ranks(ranks, [&](Communicator& world) {
    Plan plan(seed);
    for (int i = 0; i < kCases; ++i) {
      auto const calls = plan.calls(ranks);
      auto const bytes = arena_bytes(calls, ranks);
      auto const symmetric = plan.coin();
      auto grouped = symmetric ? world.allocate(bytes, DataType::u8) : Buffer::host(bytes, DataType::u8);
      auto single = Buffer::host(bytes, DataType::u8);
      auto* const a = static_cast<std::byte*>(grouped.view().data);
      auto* const b = static_cast<std::byte*>(single.view().data);
      std::memset(a, 7, bytes);
      std::memset(b, 7, bytes);
      make_calls(world, calls, b, seed + static_cast<std::uint64_t>(i) * 100, {});
      CollectiveOptions how;
      if (on_stream) how.stream = Stream::cpu();
      Group group(world, how);
      make_calls(world, calls, a, seed + static_cast<std::uint64_t>(i) * 100, {});
      group.end().wait();
      ASSERT_EQ(std::memcmp(a, b, bytes), 0)
          << "case " << i << (symmetric ? ", symmetric" : ", private") << ", " << calls.size()
          << " calls, first of kind " << static_cast<int>(calls[0].kind);
    }
  });
}

TEST(Group, GivesWhatSingleCallsGive) {
  std::uint64_t seed = 20261121;
  for (int const ranks : {1, 2, 3, 5}) {
    compare_with_single_calls(ranks, seed++, false);
    compare_with_single_calls(ranks, seed++, true);
  }
}

void expect_words(Error const& error, std::vector<std::string> const& words) {
  std::string const what = error.what();
  for (auto const& word : words) EXPECT_NE(what.find(word), std::string::npos) << what << "\ndoes not say\n" << word;
}

BufferView slice(BufferView const& whole, std::size_t first, std::size_t count) {
  return {static_cast<std::byte*>(whole.data) + first * size_of(whole.dtype), count, whole.dtype};
}

TEST(Group, ManySymmetricReduceScatters) {
  constexpr std::size_t kCalls = 980;
  run_thread_ranks(2, [&](Communicator& world) {
    for (std::size_t const count : {std::size_t{32}, std::size_t{1024}}) {
      auto send = world.allocate(kCalls * 2 * count, DataType::f32);
      auto recv = world.allocate(kCalls * count, DataType::f32);
      auto* const values = static_cast<float*>(send.view().data);
      for (std::size_t i = 0; i < kCalls * 2 * count; ++i) values[i] = static_cast<float>(i % 1000 + world.rank());
      Group group(world);
      for (std::size_t i = 0; i < kCalls; ++i) {
        world.reduce_scatter(slice(send.view(), i * 2 * count, 2 * count), slice(recv.view(), i * count, count),
                             ReduceOp::sum);
      }
      group.end();
      auto const* const sums = static_cast<float const*>(recv.view().data);
      for (std::size_t i = 0; i < kCalls * count; ++i) {
        auto const source = i / count * 2 * count + static_cast<std::size_t>(world.rank()) * count + i % count;
        ASSERT_EQ(sums[i], static_cast<float>(2 * (source % 1000) + 1));
      }
    }
  });
}

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
                                 fmt::format("({} × f32 in all, sum, sizes ", 2 * count)});
          }
        }
        world.barrier();  // still usable
      });
    }
  }
}

TEST(Group, MismatchesNameWhatBothSidesGave) {
  for (std::size_t const count : {std::size_t{10}, std::size_t{200}}) {
    run_thread_ranks(3, [&](Communicator& world) {
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
      expect_mismatch(sums, {fmt::format("group of 3 all_reduce calls ({} × f64 in all, max", 3 * count),
                             fmt::format("group of 4 all_reduce calls ({} × f64 in all, max", 4 * count)});
      Group barriers(world);
      for (int i = 0; i < calls; ++i) world.barrier();
      expect_mismatch(barriers, {"group of 3 barrier calls", "group of 4 barrier calls"});
      world.barrier();
    });
  }
}

TEST(Group, ItsTimeoutIsThatOfItsCalls) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 1;
    BufferView const one{&value, 1, DataType::f32};
    Group group(world, {.timeout = std::chrono::milliseconds(200)});
    world.all_reduce(one, one, ReduceOp::sum);
    world.barrier();
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    try {
      group.end();
      ADD_FAILURE() << "rank " << world.rank() << " met a rank that came after the timeout";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    }
  });
}

TEST(Group, NotOnACommunicatorThatWasMovedFrom) {
  run_thread_ranks(2, [](Communicator& world) {
    auto twin = world.duplicate(world.options());
    auto const other = std::move(twin);
    EXPECT_THROW(Group(twin, {}), Error);  // NOLINT(bugprone-use-after-move): what is tested
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

TEST(Group, OutlivesNothing) {
  run_thread_ranks(2, [](Communicator& world) {
    auto twin = std::make_unique<Communicator>(world.duplicate(world.options()));
    float value = 1;
    BufferView const one{&value, 1, DataType::f32};
    Group group(*twin);
    auto const work = twin->all_reduce(one, one, ReduceOp::sum);
    twin.reset();
    EXPECT_THROW(work.wait(), Error);
    EXPECT_THROW(group.end(), Error);
  });
}

void fuse_and_compare(int ranks, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
  run_thread_ranks(ranks, [&](Communicator& world) {
    Plan plan(seed);
    auto const fused = Stream::cpu();
    auto const other = Stream::cpu();
    world.fuse(fused, 100'000);
    for (int i = 0; i < kCases; ++i) {
      auto const calls = plan.calls(ranks);
      auto const bytes = arena_bytes(calls, ranks);
      auto const symmetric = plan.coin();
      auto a = symmetric ? world.allocate(bytes, DataType::u8) : Buffer::host(bytes, DataType::u8);
      auto b = Buffer::host(bytes, DataType::u8);
      std::memset(a.view().data, 7, bytes);
      std::memset(b.view().data, 7, bytes);
      auto const works = make_calls(world, calls, static_cast<std::byte*>(a.view().data), seed, {.stream = fused});
      if (plan.coin()) world.barrier({.stream = other});
      make_calls(world, calls, static_cast<std::byte*>(b.view().data), seed, {});
      for (auto const& work : works) work.wait();
      ASSERT_EQ(std::memcmp(a.view().data, b.view().data, bytes), 0) << "case " << i;
    }
  });
}

TEST(Fusion, GivesWhatSingleCallsGive) {
  std::uint64_t seed = 7;
  for (int const ranks : {1, 2, 3, 4}) fuse_and_compare(ranks, seed++);
}

TEST(Fusion, MergesUntilSomebodyLooks) {
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    world.fuse(stream, 64 << 10);
    std::vector<std::vector<float>> tensors(12, std::vector<float>(1000, 1.0F));
    std::vector<Work> works;
    auto const reduce = [&](std::vector<float>& tensor) {
      BufferView const view{tensor.data(), tensor.size(), DataType::f32};
      works.push_back(world.all_reduce(view, view, ReduceOp::sum, {.stream = stream}));
    };
    for (auto& tensor : tensors) reduce(tensor);
    works.front().wait();
    for (auto const& work : works) EXPECT_TRUE(work.test()) << "one flat transfer completes all";
    EXPECT_EQ(works.front().timings().started, works.back().timings().started);

    works.clear();
    for (int i = 0; i < 3; ++i) reduce(tensors[0]);  // each needs the one before
    works.back().wait();
    EXPECT_NE(works[0].timings().started, works[1].timings().started);
    EXPECT_EQ(tensors[0][999], 16.0F);
    EXPECT_EQ(tensors[11][0], 2.0F);

    works.clear();
    reduce(tensors[1]);
    float seen = 0;
    stream.enqueue([&] { seen = tensors[1][5]; });  // comes after the call before it
    stream.synchronize();
    EXPECT_EQ(seen, 4.0F);

    works.clear();
    for (auto& tensor : tensors) reduce(tensor);
    world.fuse(stream, 0);
    reduce(tensors[2]);
    works.back().wait();
    EXPECT_EQ(tensors[2][0], 8.0F);
  });
}

/// The number of the call that errors name is that of calls which another thread may launch meanwhile.
TEST(Fusion, ABadCallWhileAnotherThreadWaits) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const stream = Stream::cpu();
    world.fuse(stream);
    std::vector<float> values(100, 1.0F);
    BufferView const all{values.data(), values.size(), DataType::f32};
    for (int i = 0; i < 20; ++i) {
      auto const work = world.all_reduce(all, all, ReduceOp::max, {.stream = stream});
      std::thread waiter([&] { work.wait(); });
      EXPECT_THROW(world.broadcast(all, 7), Error);
      waiter.join();
    }
  });
}

TEST(Fusion, LaunchesBeforeItsCommunicatorEnds) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const stream = Stream::cpu();
    float value = 1;
    BufferView const one{&value, 1, DataType::f32};
    Work work;
    {
      auto twin = world.duplicate(world.options());
      twin.fuse(stream);
      work = twin.all_reduce(one, one, ReduceOp::sum, {.stream = stream});
    }
    work.wait();
    EXPECT_EQ(value, 2);
  });
}

TEST(Fusion, TheLastCopyOfTheStreamLaunchesAndDrains) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> values(1000, 1.0F);
    {
      auto const stream = Stream::cpu();
      world.fuse(stream);
      for (std::size_t i = 0; i < 10; ++i) {
        BufferView const part{values.data() + i * 100, 100, DataType::f32};
        world.all_reduce(part, part, ReduceOp::sum, {.stream = stream});
      }
    }
    EXPECT_EQ(values, std::vector<float>(1000, 2.0F));
    auto const another = Stream::cpu();  // maybe at the same address, but not fused
    BufferView const part{values.data(), 100, DataType::f32};
    auto const first = world.all_reduce(part, part, ReduceOp::sum, {.stream = another});
    auto const second = world.all_reduce(part, part, ReduceOp::sum, {.stream = another});
    second.wait();
    EXPECT_NE(first.timings().started, second.timings().started);
  });
}

TEST(Fusion, WhatIsTooLargeToMergeIsNotHeldBack) {
  run_thread_ranks(3, [](Communicator& world) {
    auto const stream = Stream::cpu();
    world.fuse(stream);
    std::vector<float> values(100'000, 1.0F);
    auto const view = std::span(values);
    static_cast<void>(world.all_reduce(std::span<float const>(values), view, ReduceOp::sum, {.stream = stream}));
    std::promise<void> ran;  // behind the call in the queue, past what launches calls that are held back
    stream.impl().enqueue([&] { ran.set_value(); });
    ran.get_future().wait();
    EXPECT_EQ(values[99'999], 3.0F);
  });
}

TEST(Fusion, TwoCommunicatorsShareAStreamInOrder) {
  run_thread_ranks(2, [](Communicator& world) {
    auto stream = Stream::cpu();
    auto twin = world.duplicate(world.options());
    world.fuse(stream);
    twin.fuse(stream);
    std::vector<float> values(100, 1.0F);
    BufferView const all{values.data(), values.size(), DataType::f32};
    for (int i = 0; i < 4; ++i) {
      world.all_reduce(all, all, ReduceOp::sum, {.stream = stream});
      twin.all_reduce(all, all, ReduceOp::max, {.stream = stream});
    }
    stream.synchronize();
    EXPECT_EQ(values[99], 16.0F);
  });
}

}  // namespace
}  // namespace weft::test
