// Collectives on buffers from the ranks' shared heaps, at other places on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "collectives/reference.hpp"
#include "harness/ranks.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kHeapBytes = std::size_t{64} << 20U;

CommunicatorOptions with(std::shared_ptr<SharedHeap> heap, Config const& config = {}) {
  CommunicatorOptions options;
  options.config = config;
  options.heap = std::move(heap);
  options.name = "world";
  return options;
}

using Body = std::function<void(Communicator&, SharedHeap&)>;

/// Ranks that are processes, each with a heap; failures of expectations are failures of the test.
void run_processes(int ranks, Body const& body) {
  expect_all_succeeded(run_forked_bootstraps(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    auto const heap = SharedHeap::create(kHeapBytes);
    auto world = Communicator::create(std::move(bootstrap), with(heap));
    body(world, *heap);
    return 0;
  }));
}

/// A buffer of the heap.
Buffer take(SharedHeap& heap, std::size_t count, DataType dtype) {
  auto* const block = heap.allocate(count * size_of(dtype));
  if (block == nullptr) throw Error(ErrorCode::out_of_memory, "the test's heap is full");
  return {std::shared_ptr<void>(block, [&heap](void* freed) { heap.deallocate(freed); }), count, dtype, Device{}};
}

/// The path of the last call of `world`, as dumps tell it.
std::string last_path(Communicator& world) {
  for (auto const& file : dump_flight_recorders()) {
    auto const dump = nlohmann::json::parse(std::ifstream(file));
    std::filesystem::remove(file);
    if (dump["name"] != world.options().name || dump["calls"].empty()) continue;
    auto const& path = dump["calls"].back()["path"];
    return path.is_null() ? "" : path.get<std::string>();
  }
  return "";
}

void check(std::vector<double> const& expected, ConstBufferView const& got, std::string const& what) {
  auto const values = load_values(got);
  ASSERT_EQ(expected.size(), values.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(expected[i], values[i]) << what << ", element " << i;
}

/// All four operations on `count` elements a rank, at places that differ between ranks and rounds.
void run_all(Communicator& world, SharedHeap& heap, std::size_t count, DataType dtype, std::uint64_t seed) {
  auto const ranks = static_cast<std::size_t>(world.size());
  auto const rank = static_cast<std::size_t>(world.rank());
  // Another amount before the buffers on each rank: places differ.
  auto const gap = take(heap, 1 + 4096 * rank + 64 * (seed % 7) * rank, DataType::u8);
  std::vector<std::vector<double>> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(make_values(ranks * count, dtype, ReduceOp::sum, r, seed));
  auto const sum = reduce_values(all, dtype, ReduceOp::sum);
  auto const slice = [&](std::vector<double> const& values, std::size_t part) {
    auto const begin = values.begin() + static_cast<std::ptrdiff_t>(part * count);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(count));
  };

  auto mine = take(heap, ranks * count, dtype);
  auto result = take(heap, ranks * count, dtype);
  auto part = take(heap, count, dtype);
  store_values(all[rank], mine.view());
  world.all_reduce(mine.view(), result.view(), ReduceOp::sum);
  check(sum, result.view(), "all_reduce");
  check(all[rank], mine.view(), "the input of all_reduce");
  world.reduce_scatter(mine.view(), part.view(), ReduceOp::sum);
  check(slice(sum, rank), part.view(), "reduce_scatter");
  store_values(slice(all[rank], rank), part.view());
  world.all_gather(part.view(), result.view());
  std::vector<double> gathered;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const one = slice(all[r], r);
    gathered.insert(gathered.end(), one.begin(), one.end());
  }
  check(gathered, result.view(), "all_gather");
  auto const root = static_cast<int>(seed % ranks);
  store_values(all[rank], mine.view());
  world.broadcast(mine.view(), root);
  check(all[static_cast<std::size_t>(root)], mine.view(), "broadcast");
  store_values(all[rank], mine.view());
  world.all_reduce(mine.view(), mine.view(), ReduceOp::sum);
  check(sum, mine.view(), "all_reduce in place");
}

TEST(SharedHeapCollectives, AreRightAtAnyPlaceOfEveryRank) {
  for (int const ranks : {2, 3, 4}) {
    run_processes(ranks, [](Communicator& world, SharedHeap& heap) {
      std::mt19937_64 random(20);  // alike on all ranks
      for (std::size_t const count : {1U, 37U, 1000U, 65'537U, 200'003U}) {
        auto const dtype = std::array{DataType::f32, DataType::i64, DataType::bf16}[random() % 3];
        run_all(world, heap, count, dtype, random());
      }
    });
  }
}

TEST(SharedHeapCollectives, ThreadsMayShareOneHeapOrHaveOneEach) {
  for (bool const shared : {true, false}) {
    auto const one = SharedHeap::create(kHeapBytes);
    run_thread_bootstraps(3, [&](std::shared_ptr<Bootstrap> bootstrap) {
      auto const heap = shared ? one : SharedHeap::create(kHeapBytes);
      auto world = Communicator::create(std::move(bootstrap), with(heap));
      run_all(world, *heap, 100'000, DataType::f32, 5);
    });
    EXPECT_EQ(0U, one->usage().in_use);
  }
}

TEST(SharedHeapCollectives, LargeOnesAreZeroCopyAndSmallOnesStaged) {
  run_processes(2, [](Communicator& world, SharedHeap& heap) {
    auto const large = take(heap, 1U << 20U, DataType::f32);
    world.all_reduce(large.view(), large.view(), ReduceOp::sum);
    EXPECT_EQ("zero copy", last_path(world));
    world.all_reduce(large.view().slice(5, 500'000), large.view().slice(5, 500'000), ReduceOp::sum);
    EXPECT_EQ("zero copy", last_path(world)) << "views into a block";
    world.all_reduce(large.view().slice(0, 100), large.view().slice(0, 100), ReduceOp::sum);
    EXPECT_EQ("staged: faster at this size", last_path(world));
  });
}

TEST(SharedHeapCollectives, PartsThatOverlapAreReachedThoughTogetherTheyAreLongerThanTheBuffer) {
  run_processes(2, [](Communicator& world, SharedHeap&) {
    constexpr std::size_t kCount = 500'000;
    auto const send = world.allocate(kCount, DataType::f32);
    std::fill(send.as<float>().begin(), send.as<float>().end(), 1.0F);
    auto const recv = Buffer::host(kCount, DataType::f32);
    std::vector<std::size_t> const counts(2, kCount);
    std::vector<std::size_t> const offsets(2, 0);
    world.reduce_scatter(send.view(), recv.view(), {counts, offsets}, ReduceOp::sum);
    EXPECT_EQ("zero copy", last_path(world));
    EXPECT_EQ(kCount, static_cast<std::size_t>(std::count(recv.as<float>().begin(), recv.as<float>().end(), 2.0F)));
  });
}

TEST(SharedHeapCollectives, WhatKeepsACallFromItIsNamed) {
  run_processes(3, [](Communicator& world, SharedHeap& heap) {
    constexpr std::size_t kCount = 1U << 22U;  // more than is fed to ranks that share cores
    auto const in_heap = take(heap, kCount, DataType::f32);
    auto const own = Buffer::host(kCount, DataType::f32);
    auto const symmetric = world.allocate(kCount, DataType::f32);
    auto const send = world.rank() == 1 ? own.view() : in_heap.view();
    world.all_reduce(send, in_heap.view(), ReduceOp::sum);
    EXPECT_NE(std::string::npos, last_path(world).find("rank 1's send buffer is private memory")) << last_path(world);
    world.all_reduce(in_heap.view(), world.rank() == 2 ? own.view() : in_heap.view(), ReduceOp::sum);
    EXPECT_NE(std::string::npos, last_path(world).find("rank 2's receive buffer is private memory"));
    world.broadcast(world.rank() == 1 ? symmetric.view() : in_heap.view(), 0);
    EXPECT_EQ("zero copy", last_path(world)) << "every rank's may lie in another kind";
    world.all_reduce(symmetric.view(), in_heap.view(), ReduceOp::sum);
    EXPECT_EQ("zero copy", last_path(world)) << "each of the two buffers may lie in either kind";
    auto other = world.allocate(kCount, DataType::f32);
    world.broadcast(world.rank() == 1 ? symmetric.view() : other.view(), 1);
    EXPECT_EQ("zero copy", last_path(world)) << "every rank's may lie in another allocation";
    if (world.rank() == 1) other = Buffer();
    world.broadcast(world.rank() == 1 ? symmetric.view() : other.view(), 1);
    EXPECT_NE(std::string::npos, last_path(world).find("rank 1 has released its part")) << last_path(world);
  });
}

TEST(SharedHeapCollectives, RootedCallsNeedOnlyTheRootsBuffer) {
  run_processes(3, [](Communicator& world, SharedHeap& heap) {
    constexpr std::size_t kCount = 300'000;
    auto const root = world.rank() == 2;
    auto const all = root ? take(heap, 3 * kCount, DataType::i32) : Buffer();
    auto mine = Buffer::host(kCount, DataType::i32);
    std::fill_n(static_cast<std::int32_t*>(mine.data()), kCount, 7 + world.rank());
    auto const result = root ? all.view() : BufferView{nullptr, 0, DataType::i32};
    world.gather(mine.view(), result, 2);
    if (root) {
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(static_cast<int>(7 + r), all.as<std::int32_t>()[r * kCount + 11]);
        std::fill_n(static_cast<std::int32_t*>(all.data()) + r * kCount, kCount, static_cast<int>(100 + r));
      }
    }
    world.scatter(result, mine.view(), 2);
    for (auto const value : mine.as<std::int32_t>()) ASSERT_EQ(100 + world.rank(), value);
  });
}

TEST(SharedHeapCollectives, ARankWithoutAHeapMakesAllFallBackAndIsNamed) {
  Config explaining;
  explaining.explain = true;
  auto const exits = run_forked_bootstraps(3, [&](std::shared_ptr<Bootstrap> bootstrap) {
    auto const heap = SharedHeap::create(kHeapBytes);
    auto const lacks = bootstrap->rank() == 2;
    auto world = Communicator::create(std::move(bootstrap), with(lacks ? nullptr : heap, explaining));
    run_all(world, *heap, 400'000, DataType::f32, 3);
    return last_path(world) == "copied: rank 2 has no shared heap that all ranks can map" ? 0 : 1;
  });
  expect_all_succeeded(exits);
  EXPECT_NE(std::string::npos, exits[0].output.find("shared heaps are not used: rank 2 has no shared heap"))
      << exits[0].output;
  EXPECT_NE(std::string::npos, exits[0].output.find("copied: rank 2 has no shared heap")) << exits[0].output;
}

TEST(SharedHeapCollectives, SplitsDuplicatesAndGroupsUseTheHeapsToo) {
  run_processes(4, [](Communicator& world, SharedHeap& heap) {
    auto half = world.split(world.rank() % 2, -world.rank());
    run_all(*half, heap, 300'000, DataType::f32, 8);
    EXPECT_EQ("zero copy", last_path(*half));
    auto other = world.duplicate(world.options());
    run_all(other, heap, 100'000, DataType::f32, 9);
    run_all(world, heap, 100'000, DataType::f32, 10);
    // Merged calls have no one distance from rank to rank here: they are staged, and right.
    auto const one = take(heap, 50'000, DataType::f32);
    auto const two = take(heap, 70'000, DataType::f32);
    for (auto const* buffer : {&one, &two}) std::ranges::fill(buffer->as<float>(), 2.0F);
    Group group(world);
    world.all_reduce(one.view(), one.view(), ReduceOp::sum);
    world.all_reduce(two.view(), two.view(), ReduceOp::sum);
    group.end();
    for (auto const* buffer : {&one, &two}) {
      for (auto const value : buffer->as<float>()) ASSERT_EQ(8.0F, value);
    }
  });
}

/// Mappings of shared memory; sanitizers have many others.
std::vector<std::string> shared_maps() {
  std::vector<std::string> shared;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) shared.push_back(line);
  }
  return shared;
}

std::ptrdiff_t count_maps() {
  return static_cast<std::ptrdiff_t>(shared_maps().size());
}

std::ptrdiff_t count_descriptors() {
  auto const folder = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(folder), end(folder));
}

TEST(SharedHeapCollectives, ManyCommunicatorsLeaveNoMappingsNorDescriptors) {
  run_processes(2, [](Communicator& world, SharedHeap& heap) {
    auto const buffer = take(heap, 200'000, DataType::f32);
    std::ptrdiff_t maps = 0;
    std::ptrdiff_t descriptors = 0;
    for (int i = 0; i < 200; ++i) {
      auto const more = world.duplicate(world.options());
      if (i == 10) {
        maps = count_maps();
        descriptors = count_descriptors();
      }
    }
    auto options = world.options();
    options.name = "last";
    auto last = world.duplicate(options);
    EXPECT_LE(count_maps(), maps + 8);
    EXPECT_LE(count_descriptors(), descriptors + 2) << "a communicator may have one of its peer";
    last.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
    EXPECT_EQ("zero copy", last_path(last));
  });
}

TEST(SharedHeapCollectives, PeersOfOneHeapAreMappedOnce) {
  run_processes(2, [](Communicator& world, SharedHeap&) {
    auto const before = count_maps();
    std::vector<Communicator> more;
    for (int i = 0; i < 8; ++i) more.push_back(world.duplicate(world.options()));
    auto heaps = 0;
    for (auto const& line : shared_maps()) {
      std::size_t end = 0;
      auto const begin = std::stoull(line, &end, 16);
      if (std::stoull(line.substr(end + 1), nullptr, 16) - begin >= kHeapBytes) ++heaps;
    }
    EXPECT_EQ(2, heaps) << "one's own and the peer's";
    EXPECT_GT(count_maps(), before);
  });
}

}  // namespace
}  // namespace weft::test
