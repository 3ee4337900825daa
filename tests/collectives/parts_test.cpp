// Operations with roots and parts, on random shapes against a serial reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "collectives/reference.hpp"
#include "harness/ranks.hpp"
#include "harness/sanitizers.hpp"

namespace weft::test {
namespace {

using Values = std::vector<double>;

constexpr int kCases = unless_sanitized(60, 12);
constexpr std::size_t kSizes[] = {0, 1, 2, 7, 13, 100, 1009, 20011, 70001};

/// The same sequence of cases on every rank.
class Cases {
 public:
  explicit Cases(std::uint64_t seed) : engine_(seed) {}

  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(engine_); }
  bool coin() { return below(2) == 1; }
  std::size_t size() { return kSizes[below(std::size(kSizes))]; }
  DataType dtype() { return kAllTypes[below(std::size(kAllTypes))]; }
  ReduceOp op(DataType dtype) {
    auto const op = kAllOps[below(std::size(kAllOps))];
    return supports(dtype, op) ? op : ReduceOp::prod;
  }
  std::vector<std::size_t> counts(int ranks) {
    std::vector<std::size_t> result(static_cast<std::size_t>(ranks));
    auto const most = size() + 1;
    for (auto& count : result) count = coin() ? below(most) : 0;
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

Buffer make(Communicator& world, bool symmetric, std::size_t count, DataType dtype) {
  return symmetric ? world.allocate(count, dtype) : Buffer::host(count, dtype);
}

Values values_of(std::size_t count, DataType dtype, int rank, std::uint64_t seed) {
  return make_values(count, dtype, ReduceOp::sum, rank, seed);
}

/// The reduction in double precision, rounded to what `dtype` can hold.
Values reduced(std::vector<Values> const& contributions, DataType dtype, ReduceOp op) {
  auto const exact = reduce_values(contributions, dtype, op);
  auto rounded = Buffer::host(exact.size(), dtype);
  store_values(exact, rounded.view());
  return load_values(rounded.view());
}

Values slice(Values const& all, std::size_t first, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

/// Offsets that leave gaps and are not in rank order.
std::vector<std::size_t> scattered_offsets(std::vector<std::size_t> const& counts) {
  std::vector<std::size_t> result(counts.size());
  std::size_t next = 3;
  for (std::size_t r = counts.size(); r-- > 0;) {
    result[r] = next;
    next += counts[r] + 2;
  }
  return result;
}

std::size_t end_of(std::vector<std::size_t> const& counts, std::vector<std::size_t> const& offsets) {
  std::size_t end = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) end = std::max(end, offsets[r] + counts[r]);
  return end;
}

struct PartsTest : testing::TestWithParam<int> {};

TEST_P(PartsTest, ReduceToEveryRoot) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Cases cases(1);
    for (int i = 0; i < kCases; ++i) {
      auto const count = cases.size();
      auto const dtype = cases.dtype();
      auto const op = cases.op(dtype);
      auto const root = i % world.size();
      auto const symmetric = cases.coin();
      auto const in_place = cases.coin();
      std::vector<Values> all;
      for (int r = 0; r < world.size(); ++r) all.push_back(make_values(count, dtype, op, r, 5U + count));
      auto const mine = all[static_cast<std::size_t>(world.rank())];
      auto send = make(world, symmetric, count, dtype);
      auto recv = make(world, symmetric, count, dtype);
      store_values(mine, send.view());
      auto const result = in_place ? send.view() : recv.view();
      world.reduce(send.view(), world.rank() == root ? result : BufferView(nullptr, 0, dtype), op, root);
      if (world.rank() == root) {
        ASSERT_EQ(reduced(all, dtype, op), load_values(result)) << "case " << i << ", count " << count;
      } else {
        ASSERT_EQ(mine, load_values(send.view())) << "the send buffer was written";
        ASSERT_EQ(Values(count), load_values(recv.view())) << "a rank that is not root was written to";
      }
    }
  });
}

TEST_P(PartsTest, GatherAndScatter) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Cases cases(2);
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const rank = static_cast<std::size_t>(world.rank());
    for (int i = 0; i < kCases; ++i) {
      auto const count = cases.size();
      auto const dtype = cases.dtype();
      auto const root = i % world.size();
      auto const symmetric = cases.coin();
      auto const in_place = cases.coin() && world.rank() == root;
      Values whole;
      for (int r = 0; r < world.size(); ++r) {
        auto const part = values_of(count, dtype, r, count);
        whole.insert(whole.end(), part.begin(), part.end());
      }
      auto part = make(world, symmetric, count, dtype);
      auto all = make(world, symmetric, count * ranks, dtype);
      auto const own = in_place ? all.view().slice(rank * count, count) : part.view();
      store_values(slice(whole, rank * count, count), own);
      auto const at_root = world.rank() == root ? all.view() : BufferView(nullptr, 0, dtype);
      world.gather(own, at_root, root);
      if (world.rank() == root) {
        ASSERT_EQ(whole, load_values(all.view())) << "gather " << i << ", count " << count;
      }

      store_values(Values(count), part.view());
      world.scatter(at_root, own, root);
      ASSERT_EQ(slice(whole, rank * count, count), load_values(own)) << "scatter " << i << ", count " << count;
    }
  });
}

TEST_P(PartsTest, UnequalGatherAndScatter) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Cases cases(3);
    auto const rank = static_cast<std::size_t>(world.rank());
    for (int i = 0; i < kCases; ++i) {
      auto const counts = cases.counts(world.size());
      auto const offsets = scattered_offsets(counts);
      auto const dtype = cases.dtype();
      auto const root = i % world.size();
      auto const symmetric = cases.coin();
      auto const end = end_of(counts, offsets);
      Values whole(end);
      for (std::size_t r = 0; r < counts.size(); ++r) {
        auto const part = values_of(counts[r], dtype, static_cast<int>(r), 7);
        std::copy(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(offsets[r]));
      }
      auto const mine = slice(whole, offsets[rank], counts[rank]);
      auto const most = *std::max_element(counts.begin(), counts.end());
      auto part = make(world, symmetric, most, dtype);
      auto all = make(world, symmetric, end, dtype);
      auto const own = part.view().slice(0, counts[rank]);
      store_values(mine, own);
      auto const is_root = world.rank() == root;
      auto const at_root = is_root ? all.view() : BufferView(nullptr, 0, dtype);
      Parts const parts = is_root ? Parts{counts, offsets} : Parts{};
      world.gather(own, at_root, parts, root);
      if (is_root) {
        ASSERT_EQ(whole, load_values(all.view())) << "gather " << i;
      }

      store_values(Values(most), part.view());
      world.scatter(at_root, parts, own, root);
      ASSERT_EQ(mine, load_values(own)) << "scatter " << i;
    }
  });
}

TEST_P(PartsTest, AllToAll) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Cases cases(4);
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const rank = static_cast<std::size_t>(world.rank());
    for (int i = 0; i < kCases; ++i) {
      auto const count = cases.size();
      auto const dtype = cases.dtype();
      auto const symmetric = cases.coin();
      auto const in_place = cases.coin();
      auto send = make(world, symmetric, count * ranks, dtype);
      auto recv = make(world, symmetric, count * ranks, dtype);
      auto const sent = values_of(count * ranks, dtype, world.rank(), count);
      store_values(sent, send.view());
      Values wanted;
      for (int r = 0; r < world.size(); ++r) {
        auto const theirs = slice(values_of(count * ranks, dtype, r, count), rank * count, count);
        wanted.insert(wanted.end(), theirs.begin(), theirs.end());
      }
      auto const result = in_place ? send.view() : recv.view();
      world.all_to_all(send.view(), result);
      ASSERT_EQ(wanted, load_values(result)) << "case " << i << ", count " << count << (in_place ? " in place" : "");
      if (!in_place) {
        ASSERT_EQ(sent, load_values(send.view())) << "the send buffer was written";
      }
    }
  });
}

TEST_P(PartsTest, UnequalAllToAll) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Cases cases(5);
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const rank = static_cast<std::size_t>(world.rank());
    for (int i = 0; i < kCases; ++i) {
      std::vector<std::vector<std::size_t>> matrix;  // [from][to]
      for (std::size_t r = 0; r < ranks; ++r) matrix.push_back(cases.counts(world.size()));
      auto const dtype = cases.dtype();
      auto const symmetric = cases.coin();
      auto const& gives = matrix[rank];
      std::vector<std::size_t> gets;
      for (std::size_t r = 0; r < ranks; ++r) gets.push_back(matrix[r][rank]);
      auto const send_offsets = scattered_offsets(gives);
      auto const recv_offsets = scattered_offsets(gets);
      std::size_t most = 0;
      for (auto const& row : matrix) most = std::max(most, end_of(row, scattered_offsets(row)));
      for (std::size_t to = 0; to < ranks; ++to) {
        std::vector<std::size_t> column;
        for (auto const& row : matrix) column.push_back(row[to]);
        most = std::max(most, end_of(column, scattered_offsets(column)));
      }
      auto send = make(world, symmetric, most, dtype);
      auto recv = make(world, symmetric, most, dtype);
      store_values(values_of(most, dtype, world.rank(), 11), send.view());
      Values wanted(most);
      for (std::size_t r = 0; r < ranks; ++r) {
        auto const theirs = values_of(most, dtype, static_cast<int>(r), 11);
        auto const part = slice(theirs, scattered_offsets(matrix[r])[rank], gets[r]);
        std::copy(part.begin(), part.end(), wanted.begin() + static_cast<std::ptrdiff_t>(recv_offsets[r]));
      }
      world.all_to_all(send.view(), {gives, send_offsets}, recv.view(), {gets, recv_offsets});
      ASSERT_EQ(wanted, load_values(recv.view())) << "case " << i;
    }
  });
}

TEST_P(PartsTest, UnequalReduceScatterAndAllGather) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Cases cases(6);
    auto const rank = static_cast<std::size_t>(world.rank());
    for (int i = 0; i < kCases; ++i) {
      auto const counts = cases.counts(world.size());
      auto const packed = cases.coin();
      auto const offsets = packed ? std::vector<std::size_t>{} : scattered_offsets(counts);
      auto const end = packed ? std::accumulate(counts.begin(), counts.end(), std::size_t{0}) : end_of(counts, offsets);
      auto const first =
          packed ? std::accumulate(counts.begin(), counts.begin() + world.rank(), std::size_t{0}) : offsets[rank];
      auto const dtype = cases.dtype();
      auto const op = cases.op(dtype);
      auto const symmetric = cases.coin();
      auto const in_place = cases.coin();
      auto const most = *std::max_element(counts.begin(), counts.end());
      auto part = make(world, symmetric, most, dtype);
      auto whole = make(world, symmetric, end, dtype);
      std::vector<Values> all;
      for (int r = 0; r < world.size(); ++r) all.push_back(make_values(end, dtype, op, r, 13));
      store_values(all[rank], whole.view());
      auto const own = in_place ? whole.view().slice(first, counts[rank]) : part.view().slice(0, counts[rank]);
      world.reduce_scatter(whole.view(), own, {counts, offsets}, op);
      ASSERT_EQ(slice(reduced(all, dtype, op), first, counts[rank]), load_values(own)) << "reduce_scatter " << i;

      auto const mine = values_of(counts[rank], dtype, world.rank(), 17);
      store_values(mine, own);
      world.all_gather(own, whole.view(), {counts, offsets});
      std::size_t next = 0;
      auto const gathered = load_values(whole.view());
      for (std::size_t r = 0; r < counts.size(); ++r) {
        ASSERT_EQ(values_of(counts[r], dtype, static_cast<int>(r), 17),
                  slice(gathered, packed ? next : offsets[r], counts[r]))
            << "all_gather " << i << ", part of rank " << r;
        next += counts[r];
      }
    }
  });
}

TEST_P(PartsTest, Scans) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Cases cases(7);
    for (int i = 0; i < kCases; ++i) {
      auto const count = cases.size();
      auto const dtype = cases.dtype();
      auto op = cases.op(dtype);
      if (op == ReduceOp::avg) op = ReduceOp::sum;
      auto const inclusive = cases.coin();
      auto const in_place = cases.coin();
      std::vector<Values> earlier;
      for (int r = 0; r < world.rank() + (inclusive ? 1 : 0); ++r)
        earlier.push_back(make_values(count, dtype, op, r, 19));
      auto send = Buffer::host(count, dtype);
      auto recv = Buffer::host(count, dtype);
      auto const mine = make_values(count, dtype, op, world.rank(), 19);
      store_values(mine, send.view());
      auto const result = in_place ? send.view() : recv.view();
      inclusive ? world.scan(send.view(), result, op) : world.exscan(send.view(), result, op);
      auto const untouched = in_place ? mine : Values(count);
      ASSERT_EQ(earlier.empty() ? untouched : reduced(earlier, dtype, op), load_values(result)) << "case " << i;
    }
  });
}

TEST_P(PartsTest, OnStreamsTheCallersArraysMayGo) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Stream const stream = Stream::cpu();
    auto const ranks = static_cast<std::size_t>(world.size());
    auto send = Buffer::host(ranks * 1000, DataType::f32);
    auto recv = Buffer::host(ranks * 1000, DataType::f32);
    store_values(Values(ranks * 1000, world.rank() + 1.0), send.view());
    std::vector<Work> works;
    for (int i = 0; i < 10; ++i) {
      std::vector<std::size_t> counts(ranks, 1000);
      works.push_back(world.all_to_all(send.view(), {counts}, recv.view(), {counts}, {.stream = stream}));
      std::fill(counts.begin(), counts.end(), std::size_t{1} << 40U);
    }
    for (auto& work : works) work.wait();
    for (std::size_t r = 0; r < ranks; ++r) {
      ASSERT_EQ(Values(1000, static_cast<double>(r) + 1), load_values(recv.view().slice(r * 1000, 1000)));
    }
  });
}

TEST_P(PartsTest, ContradictingPartsFailOnEveryRank) {
  if (GetParam() == 1) GTEST_SKIP() << "nobody to contradict";
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    std::vector<std::size_t> const gives(ranks, 3);
    std::vector<std::size_t> gets(ranks, 3);
    if (world.rank() == 1) gets[0] = 4;
    std::vector<float> send(ranks * 3, 1.0F);
    std::vector<float> recv(ranks * 4);
    try {
      world.all_to_all(std::span(send), {gives}, std::span(recv), {gets});
      ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::mismatch, error.code());
      EXPECT_NE(std::string::npos, std::string(error.what()).find("rank 0 gives rank 1 12 bytes, which expects 16"))
          << error.what();
    }
    float one = 1;
    float sum = 0;
    world.all_reduce(std::span(&one, 1), std::span(&sum, 1), ReduceOp::sum);  // the communicator goes on
    EXPECT_EQ(static_cast<float>(ranks), sum);

    std::vector<std::size_t> shards(ranks, 2);
    if (world.rank() == 0) shards[0] = 1, shards[1] = 3;
    std::vector<float> shard(shards[static_cast<std::size_t>(world.rank())]);
    EXPECT_THROW(world.reduce_scatter(std::span(send).first(ranks * 2), std::span(shard), {shards}, ReduceOp::sum),
                 Error);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PartsTest, testing::Values(1, 2, 3, 4, 9));

}  // namespace
}  // namespace weft::test
