// Every type by every operator, scaled sums and functions of the caller's: on every path the bits of one serial
// reduction of all ranks' contributions, in rank order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "collectives/reference.hpp"
#include "harness/ranks.hpp"
#include "harness/sanitizers.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::test {
namespace {

constexpr int kCases = unless_sanitized(40, 8);

using Bytes = std::vector<std::byte>;

/// x → factor·x + offset (mod 2^32): composition is associative and does not commute.
struct Map {
  std::uint32_t factor = 1;
  std::uint32_t offset = 0;
  std::uint32_t applied = 1;
};
constexpr std::size_t kWords = sizeof(Map) / sizeof(std::uint32_t);

void compose(void* accumulator, void const* next, std::size_t count, void* /*context*/) {
  auto* const first = static_cast<Map*>(accumulator);
  auto const* const then = static_cast<Map const*>(next);
  for (std::size_t i = 0; i < count; ++i) {
    first[i] = {then[i].factor * first[i].factor, then[i].factor * first[i].offset + then[i].offset,
                first[i].applied + then[i].applied};
  }
}

/// One way of reducing, as every rank knows it.
struct Way {
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::vector<double> scales;  // of the ranks

  [[nodiscard]] std::size_t words() const { return op == ReduceOp::user ? kWords : 1; }  // that stay together
  [[nodiscard]] Reduction of(int rank) const {
    if (op == ReduceOp::user) return Reduction::user(&compose, nullptr, sizeof(Map), "compose");
    if (op == ReduceOp::premul_sum) return Reduction::premul_sum(scales[static_cast<std::size_t>(rank)]);
    return op;
  }
  /// The first `ranks` ranks' contributions, reduced.
  [[nodiscard]] Bytes expected(std::vector<Bytes> const& contributions, std::size_t ranks) const {
    Bytes result(contributions.front().size());
    std::vector<void const*> sources;
    for (std::size_t r = 0; r < ranks; ++r) sources.push_back(contributions[r].data());
    void* const to = result.data();
    UserFunction const user = op == ReduceOp::user ? of(0).function() : UserFunction{};
    auto const element = op == ReduceOp::user ? sizeof(Map) : size_of(dtype);
    kernels::reduce({&to, 1}, sources, result.size() / element, dtype, {op, scales.data(), user});
    return result;
  }
  [[nodiscard]] std::string name() const { return std::string(to_string(dtype)) + " " + std::string(to_string(op)); }
};

/// `count` elements of a rank; floats are neither integral nor so large that they overflow.
Bytes contribution(Way const& way, std::size_t count, int rank, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1009 + static_cast<std::uint64_t>(rank));
  Bytes bytes(count * size_of(way.dtype));
  if (!is_floating_point(way.dtype) && !is_complex(way.dtype)) {
    for (auto& byte : bytes) byte = static_cast<std::byte>(random() % 5 == 0 ? 0 : random());
    return bytes;
  }
  auto const part = way.dtype == DataType::c64 ? DataType::f32 : DataType::f64;
  auto const real = is_complex(way.dtype) ? part : way.dtype;
  std::vector<double> values(bytes.size() / size_of(real));
  for (auto& value : values) value = random() % 5 == 0 ? 0 : static_cast<double>(random() % 4096) / 1024 - 2;
  store_values(values, {bytes.data(), values.size(), real});
  return bytes;
}

/// The same sequence of cases on every rank.
class Cases {
 public:
  explicit Cases(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t limit) { return random_() % limit; }
  bool coin() { return below(2) == 1; }

  Way scaled(int ranks) {
    Way way;
    way.op = ReduceOp::premul_sum;
    do way.dtype = kAllTypes[below(std::size(kAllTypes))];
    while (!supports(way.dtype, way.op));
    for (int r = 0; r < ranks; ++r) {
      auto const whole = is_integer(way.dtype);
      way.scales.push_back(whole ? static_cast<double>(below(9)) - (is_signed(way.dtype) ? 4 : 0)
                                 : static_cast<double>(below(1000)) / 300 - 1);
    }
    return way;
  }
  Way any(int ranks) {
    if (below(3) == 0) return {DataType::u32, ReduceOp::user, {}};
    if (coin()) return scaled(ranks);
    Way way;
    do {
      way.dtype = kAllTypes[below(std::size(kAllTypes))];
      way.op = kAllOps[below(std::size(kAllOps))];
    } while (!supports(way.dtype, way.op));
    return way;
  }
  /// From what an announcement carries to more than a megabyte.
  std::size_t count(Way const& way) {
    constexpr std::size_t kBytes[] = {0, 16, 48, 56, 200, 4000, 20'000, 130'000, 300'000, 1'100'000};
    return (kBytes[below(std::size(kBytes))] + below(64)) / (size_of(way.dtype) * way.words()) * way.words();
  }

 private:
  std::mt19937_64 random_;
};

void put(Bytes const& bytes, BufferView const& view) {
  if (!bytes.empty()) std::memcpy(view.data, bytes.data(), bytes.size());
}
Bytes take(BufferView const& view) {
  auto const* const data = static_cast<std::byte const*>(view.data);
  return {data, data + view.bytes()};
}
Bytes slice(Bytes const& all, std::size_t first, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

struct ReductionTest : testing::TestWithParam<int> {
  /// Calls `body(world, way, count, contributions, send, recv)` with random ways and shapes.
  template <typename Body>
  static void for_cases(std::uint64_t seed, Body body) {
    run_thread_ranks(GetParam(), [&](Communicator& world) {
      Cases random(seed);
      for (int i = 0; i < kCases; ++i) {
        auto const way = random.any(world.size());
        auto const count = random.count(way);
        auto const symmetric = random.coin();
        auto const in_place = random.coin();
        std::vector<Bytes> all;
        for (int r = 0; r < world.size(); ++r) all.push_back(contribution(way, count, r, seed + count));
        auto send = symmetric ? world.allocate(count, way.dtype) : Buffer::host(count, way.dtype);
        auto recv = symmetric ? world.allocate(count, way.dtype) : Buffer::host(count, way.dtype);
        put(all[static_cast<std::size_t>(world.rank())], send.view());
        SCOPED_TRACE(way.name() + " × " + std::to_string(count) + (symmetric ? " symmetric" : " private") +
                     (in_place ? " in place" : ""));
        body(world, way, all, send.view(), in_place ? send.view() : recv.view());
        if (testing::Test::HasFatalFailure()) return;
      }
    });
  }
};

TEST_P(ReductionTest, AllReduceAndReduce) {
  for_cases(11, [](Communicator& world, Way const& way, std::vector<Bytes> const& all, auto send, auto recv) {
    auto const wanted = way.expected(all, all.size());
    auto const root = static_cast<int>(send.count) % world.size();
    auto const own = all[static_cast<std::size_t>(world.rank())];
    world.reduce(send, recv, way.of(world.rank()), root);
    if (world.rank() == root) {
      ASSERT_EQ(wanted, take(recv)) << "reduce";
    }
    put(own, send);
    world.all_reduce(send, recv, way.of(world.rank()));
    ASSERT_EQ(wanted, take(recv)) << "all_reduce";
  });
}

TEST_P(ReductionTest, ReduceScatterEqualAndNot) {
  for_cases(12, [](Communicator& world, Way const& way, std::vector<Bytes> const& all, auto send, auto recv) {
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const rank = static_cast<std::size_t>(world.rank());
    auto const element = size_of(way.dtype);
    auto const wanted = way.expected(all, all.size());
    auto const units = send.count / way.words();
    auto const equal = units / ranks * way.words();
    auto const apart = Buffer::host(send.count, way.dtype);
    auto const to = recv.data == send.data ? apart.view() : recv;
    world.reduce_scatter(send.slice(0, equal * ranks), to.slice(0, equal), way.of(world.rank()));
    ASSERT_EQ(slice(wanted, rank * equal * element, equal * element), take(to.slice(0, equal))) << "equal";

    std::vector<std::size_t> counts(ranks);
    std::size_t left = units;
    for (std::size_t r = 0; r < ranks; ++r) {
      counts[r] = (r + 1 == ranks ? left : left / 3 * (r % 2)) * way.words();
      left -= counts[r] / way.words();
    }
    auto const first = std::accumulate(counts.begin(), counts.begin() + world.rank(), std::size_t{0});
    world.reduce_scatter(send, to.slice(0, counts[rank]), {counts}, way.of(world.rank()));
    ASSERT_EQ(slice(wanted, first * element, counts[rank] * element), take(to.slice(0, counts[rank]))) << "unequal";
  });
}

TEST_P(ReductionTest, Scans) {
  for_cases(13, [](Communicator& world, Way const& way, std::vector<Bytes> const& all, auto send, auto recv) {
    if (way.op == ReduceOp::avg) return;
    auto const rank = static_cast<std::size_t>(world.rank());
    world.scan(send, recv, way.of(world.rank()));
    ASSERT_EQ(way.expected(all, rank + 1), take(recv)) << "scan";
    put(all[rank], send);
    world.exscan(send, recv, way.of(world.rank()));
    if (rank > 0) {
      ASSERT_EQ(way.expected(all, rank), take(recv)) << "exscan";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReductionTest, testing::Values(1, 2, 3, 4, 5));

TEST(Reduction, ScalesDifferBetweenRanksAndNarrowFloatsRoundOnce) {
  run_thread_ranks(3, [](Communicator& world) {
    // 1 + 0.001 + 0.001 as f16 needs the scaled terms unrounded: 2^-10 is a last place of 1.
    std::vector<Half> const one(5, to_half(1.0F));
    std::vector<Half> sum(5);
    auto const scale = world.rank() == 0 ? 1.0 : 0.0003;
    world.all_reduce(std::span(one), std::span(sum), Reduction::premul_sum(scale));
    EXPECT_EQ(to_half(1.0F + 0.0003F + 0.0003F).bits, sum[4].bits);
    EXPECT_EQ(0x3c01, sum[0].bits);
  });
}

TEST(Reduction, OnAStreamNeedsNothingOfTheCallersButItsContext) {
  run_thread_ranks(3, [](Communicator& world) {
    Stream const stream = Stream::cpu();
    std::vector<double> values(50'000, 2.0);
    std::vector<double> sums(values.size());
    auto work = world.all_reduce(std::span(values), std::span(sums), Reduction::premul_sum(world.rank() + 1.0),
                                 {.stream = stream});
    work.wait();
    EXPECT_EQ(std::vector<double>(values.size(), 12.0), sums);
    std::vector<std::uint32_t> maps(3 * 1000, 1);
    auto composed =
        world.all_reduce(std::span(maps), std::span(maps),
                         Reduction::user(&compose, nullptr, sizeof(Map), std::string("compose")), {.stream = stream});
    composed.wait();
    EXPECT_EQ(1U, maps[0]);
    EXPECT_EQ(3U, maps[1]);
    EXPECT_EQ(3U, maps[2]);
  });
}

void add_aligned(void* accumulator, void const* next, std::size_t count, void* context) {
  for (auto const* array : {static_cast<void const*>(accumulator), next}) {
    if (reinterpret_cast<std::uintptr_t>(array) % 64 != 0) *static_cast<bool*>(context) = false;
  }
  auto* const sums = static_cast<std::uint64_t*>(accumulator);
  for (std::size_t i = 0; i < 2 * count; ++i) sums[i] += static_cast<std::uint64_t const*>(next)[i];
}

TEST(Reduction, FunctionsGetAlignedArraysWhereverTheBuffersLie) {
  run_thread_ranks(3, [](Communicator& world) {
    bool aligned = true;
    auto const how = Reduction::user(&add_aligned, &aligned, 16, "add");
    std::vector<std::uint64_t> values(2 * 5000 + 2);
    for (std::size_t const elements : {1, 2, 3, 20, 23, 24, 300, 5000}) {
      std::span<std::uint64_t> const all(values.data() + 2, 2 * elements);
      std::fill(all.begin(), all.end(), 3);
      world.reduce(all, all, how, 1);
      if (world.rank() == 1) {
        EXPECT_EQ(static_cast<std::ptrdiff_t>(all.size()), std::count(all.begin(), all.end(), 9)) << elements;
      }
      std::fill(all.begin(), all.end(), 4);
      world.all_reduce(all, all, how);
      EXPECT_EQ(static_cast<std::ptrdiff_t>(all.size()), std::count(all.begin(), all.end(), 12)) << elements;
      world.scan(all, all, how);
    }
    EXPECT_TRUE(aligned);
  });
}

/// The message of the invalid_argument that `body` throws.
template <typename Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (Error const& error) {
    EXPECT_EQ(ErrorCode::invalid_argument, error.code()) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Reduction, IllegalPairsAreRefusedNamingBoth) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<std::byte> memory(64);
    for (auto const dtype : kAllTypes) {
      BufferView const view(memory.data(), 2, dtype);
      for (auto const op : kAllOps) {
        if (supports(dtype, op)) continue;
        auto const message = refusal([&] { world.all_reduce(view, view, op); });
        EXPECT_NE(std::string::npos, message.find(to_string(op))) << message;
        EXPECT_NE(std::string::npos, message.find(to_string(dtype))) << message;
        refusal([&] { world.reduce(view, view, op, 0); });
        refusal([&] { world.scan(view, view, op); });
        refusal([&] { world.reduce_scatter(view, view.slice(0, 1), op); });
      }
    }
    world.barrier();  // nothing was sent
  });
}

TEST(Reduction, BadScalesAndFunctionsAreRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<std::uint8_t> bytes(24);
    std::span<std::uint8_t> const view(bytes);
    auto const by = [&](Reduction const& how) { return refusal([&] { world.all_reduce(view, view, how); }); };
    for (double const scale : {0.5, -1.0, 256.0})
      EXPECT_NE(std::string::npos, by(Reduction::premul_sum(scale)).find("u8"));
    EXPECT_NE(std::string::npos, by(ReduceOp::user).find("function"));
    EXPECT_NE(std::string::npos, by(Reduction::user(&compose, nullptr, 9, "nines")).find("nines"));
    EXPECT_NE(std::string::npos, by(Reduction::user(&compose, nullptr, 1000)).find("256"));
    std::vector<std::size_t> const counts{10, 14};
    refusal([&] {
      auto const shard = view.first(counts[static_cast<std::size_t>(world.rank())]);
      world.reduce_scatter(view, shard, {counts}, Reduction::user(&compose, nullptr, sizeof(Map)));
    });
    world.barrier();
  });
}

TEST(Reduction, DifferentFunctionsAreAMismatch) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<std::uint32_t> words(12);
    auto const* const name = world.rank() == 0 ? "compose" : "maximum";
    try {
      world.all_reduce(std::span(words), std::span(words), Reduction::user(&compose, nullptr, sizeof(Map), name));
      ADD_FAILURE() << "nothing was thrown";
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::mismatch, error.code()) << error.what();
    }
  });
}

}  // namespace
}  // namespace weft::test
