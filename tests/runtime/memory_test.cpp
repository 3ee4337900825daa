#include "weft/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/topology.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/fully_sharded.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::test {
namespace {

constexpr double kMostOff = 0.02;

/// Bytes a rank of a communicator with CommunicatorOptions::small_staging.
std::size_t small_ring() {
  return std::max(std::size_t{384} << 10, discover_topology().l2_bytes / 8 * 3);
}

TEST(MemoryAccountTest, CountsWhatIsHeldByKind) {
  MemoryAccount const account;
  MemoryAccount::Binding const bound(account);
  auto const parameters = [] {
    MemoryScope const scope(MemoryKind::parameters);
    return Buffer::host(1000, DataType::f32);
  }();
  {
    Buffer const other = Buffer::host(10, DataType::f64);
    EXPECT_EQ(account.usage(MemoryKind::other).live, 80U);
    EXPECT_EQ(account.total().live, 4080U);
  }
  EXPECT_EQ(account.usage(MemoryKind::parameters).live, 4000U);
  EXPECT_EQ(account.usage(MemoryKind::other).live, 0U);
  EXPECT_EQ(account.usage(MemoryKind::other).peak, 80U);
  EXPECT_EQ(account.total().peak, 4080U);
}

TEST(MemoryAccountTest, ABufferMayOutliveAccountThreadAndBinding) {
  Buffer kept;
  std::thread([&] {
    MemoryAccount const account;
    MemoryAccount::Binding const bound(account);
    kept = Buffer::host(1 << 21, DataType::f32);
    EXPECT_EQ(account.total().live, std::size_t{4} << 21U);
  }).join();
  kept.as<float>()[0] = 1;
  kept = Buffer();
}

TEST(MemoryAccountTest, NothingIsCountedWithoutOne) {
  MemoryAccount const account(0);
  Buffer const buffer = Buffer::host(1000, DataType::f32);
  std::thread([] { Buffer const another = Buffer::host(1000, DataType::f32); }).join();
  EXPECT_EQ(account.total().peak, 0U);
}

TEST(MemoryAccountTest, WhatDoesNotFitIsNamed) {
  MemoryAccount const account(4 << 20);
  MemoryAccount::Binding const bound(account);
  MemoryScope const scope(MemoryKind::gradients);
  MemoryCharge activations(MemoryKind::activations, 3 << 20);
  Buffer const fits = Buffer::host(1 << 20, DataType::u8);
  expect_error(ErrorCode::out_of_memory,
               {"budget of 4.0 MiB", "2.0 MiB of gradients",
                "in use are 4.0 MiB (gradients 1.0 MiB, activations 3.0 MiB)", "shard more"},
               [] { (void)Buffer::host(2 << 20, DataType::u8); });
  EXPECT_EQ(account.total().live, std::size_t{4} << 20U);
  activations.set(1 << 20);
  Buffer const now = Buffer::host(2 << 20, DataType::u8);
}

TEST(MemoryAccountTest, SmallSizesHaveSmallUnits) {
  MemoryAccount const account(1000);
  MemoryAccount::Binding const bound(account);
  auto const charge = [](MemoryKind kind, std::size_t bytes) { MemoryCharge const made(kind, bytes); };
  expect_error(ErrorCode::out_of_memory,
               {"budget of 1000 B: 1.5 KiB of parameters do not fit; nothing is in use; raise the budget"},
               [&] { charge(MemoryKind::parameters, 1536); });
  MemoryCharge const activations(MemoryKind::activations, 999);
  expect_error(ErrorCode::out_of_memory, {"2 B of gradients do not fit; in use are 999 B (activations 999 B)"},
               [&] { charge(MemoryKind::gradients, 2); });
}

// More ranks or more sharding would take none of it away.
TEST(MemoryAccountTest, WhereCommunicationTakesMostTheAdviceIsAboutThat) {
  MemoryAccount const account(1000);
  MemoryAccount::Binding const bound(account);
  for (MemoryKind const kind : {MemoryKind::communication, MemoryKind::parameters}) {
    SCOPED_TRACE(to_string(kind));
    MemoryCharge const staging(MemoryKind::communication, 600);
    try {
      MemoryCharge const made(kind, 500);
      FAIL() << "500 and 600 bytes fit into 1000";
    } catch (Error const& error) {
      std::string const what = error.what();
      for (char const* part : {"WEFT_STAGING_BYTES", "small_staging", "communication 600 B"}) {
        EXPECT_NE(what.find(part), std::string::npos) << what;
      }
      EXPECT_EQ(what.find("shard more"), std::string::npos) << what;
    }
  }
}

// Against a plain sum, over random charges that come, change and go.
TEST(MemoryAccountTest, IsTheSumOfItsCharges) {
  std::mt19937 random(7);
  MemoryAccount const account;
  MemoryAccount::Binding const bound(account);
  std::vector<MemoryCharge> charges;
  std::vector<std::size_t> sizes;
  std::size_t peak = 0;
  for (int round = 0; round < 2000; ++round) {
    std::size_t const size = random() % 1000;
    std::size_t const which = charges.empty() ? 0 : random() % charges.size();
    if (charges.empty() || random() % 3 == 0) {
      charges.emplace_back(MemoryKind::optimizer, size);
      sizes.push_back(size);
    } else if (random() % 2 == 0) {
      charges[which].set(static_cast<std::ptrdiff_t>(size));
      sizes[which] = size;
    } else {
      charges.erase(charges.begin() + static_cast<std::ptrdiff_t>(which));
      sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(which));
    }
    std::size_t sum = 0;
    for (std::size_t const one : sizes) sum += one;
    peak = std::max(peak, sum);
    ASSERT_EQ(account.total().live, sum);
    ASSERT_EQ(account.usage(MemoryKind::optimizer).peak, peak);
  }
}

TEST(MemoryAccountTest, SymmetricMemoryCountsThisRanksPart) {
  run_thread_ranks(3, [](Communicator& world) {
    MemoryAccount const account;
    MemoryAccount::Binding const bound(account);
    std::size_t before = 0;
    {
      Communicator own = world.duplicate(world.options());
      before = account.usage(MemoryKind::communication).live;
      EXPECT_GT(before, 0U);
      Buffer const buffer = own.allocate(1 << 20, DataType::f32);
      EXPECT_EQ(account.usage(MemoryKind::communication).live, before + (4U << 20U));
    }
    world.barrier();
    EXPECT_EQ(account.total().live, 0U);
  });
}

// Beside the ring: feeds, announcements, and the blocks that two ranks swap.
TEST(MemoryAccountTest, SmallStagingTakesLittle) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Config config;
  config.staging_bytes = 64 * kMiB;
  for (int const ranks : {1, 2, 3}) {
    run_thread_ranks(ranks,
                     [](Communicator& world) {
                       MemoryAccount const account;
                       MemoryAccount::Binding const bound(account);
                       auto const communication = [&] { return account.usage(MemoryKind::communication).live; };
                       CommunicatorOptions options = world.options();
                       Communicator const whole = world.duplicate(options);
                       EXPECT_GE(communication(), 64 * kMiB);
                       std::size_t const before = communication();
                       options.small_staging = true;
                       Communicator small = world.duplicate(options);
                       EXPECT_GE(communication() - before, small_ring());
                       EXPECT_LE(communication() - before, small_ring() + 2 * kMiB);
                       // More private memory than the ring has.
                       std::vector<std::int32_t> values(5 * kMiB / sizeof(std::int32_t) + 1);
                       std::iota(values.begin(), values.end(), world.rank());
                       std::vector<std::int32_t> sums(values.size());
                       small.all_reduce(std::span<std::int32_t const>(values), std::span(sums), ReduceOp::sum);
                       int const n = world.size();
                       for (std::size_t i = 0; i < sums.size(); ++i) {
                         ASSERT_EQ(sums[i], n * static_cast<std::int32_t>(i) + n * (n - 1) / 2);
                       }
                     },
                     {.config = config});
  }
}

TEST(MemoryAccountTest, OneRanksBudgetRefusesOnAll) {
  run_thread_ranks(3, [](Communicator& world) {
    MemoryAccount const account(world.rank() == 1 ? 1 << 20 : MemoryAccount::kUnlimited);
    MemoryAccount::Binding const bound(account);
    expect_error(ErrorCode::out_of_memory, {"rank 1", "memory budget"}, [&] {
      try {
        (void)world.allocate(1 << 20, DataType::f32);
      } catch (Error const& error) {
        if (world.rank() != 1) throw;
        throw Error(error.code(), std::string("rank 1: ") + error.what());
      }
    });
    EXPECT_EQ(account.total().live, 0U);
    Buffer const fits = world.allocate(1 << 17, DataType::f32);
    world.barrier();
  });
}

/// A model of many sizes; `total` elements.
std::vector<Buffer> tensors(std::size_t& total, DataType dtype) {
  std::vector<Buffer> all;
  total = 0;
  for (std::size_t const count : {100'000U, 7U, 65'536U, 1'001U, 250'000U, 333U, 90'000U}) {
    all.push_back(Buffer::host(count, dtype));
    total += count;
  }
  return all;
}

std::vector<BufferView> views(std::vector<Buffer> const& buffers) {
  std::vector<BufferView> all;
  for (Buffer const& buffer : buffers) all.push_back(buffer.view());
  return all;
}

void expect_theory(MemoryAccount const& account, MemoryKind kind, double bytes, char const* what) {
  EXPECT_NEAR(static_cast<double>(account.usage(kind).live), bytes, kMostOff * bytes) << to_string(kind) << ' ' << what;
}

TEST(MemoryTheoryTest, ZeroKeepsWhatItSays) {
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      for (DataType const dtype : {DataType::f32, DataType::bf16}) {
        for (ZeroStage const stage : {ZeroStage::optimizer_states, ZeroStage::gradients}) {
          std::size_t count = 0;
          auto const start = tensors(count, dtype);
          MemoryAccount const account;
          MemoryAccount::Binding const bound(account);
          auto const p = static_cast<double>(count * size_of(dtype));
          double const s = static_cast<double>(count) * (dtype == DataType::f32 ? 8 : 12) / ranks;
          ZeroOptimizer zero(world, {{views(start), AdamWOptions{}}}, {.stage = stage});
          for (int step = 0; step < 3; ++step) {
            zero.wait_parameters();
            for (std::size_t i = 0; i < start.size(); ++i) zero.mark_ready(i);
            zero.step();
          }
          zero.wait_parameters();
          expect_theory(account, MemoryKind::parameters, p, "zero");
          expect_theory(account, MemoryKind::optimizer, s, "zero");
          expect_theory(account, MemoryKind::gradients, stage == ZeroStage::gradients ? p / ranks : p, "zero");
          EXPECT_GE(account.usage(MemoryKind::gradients).peak, p);
        }
      }
    });
  }
}

TEST(MemoryTheoryTest, FullyShardedKeepsSixteenBytesAParameterOverTheRanks) {
  Config config;
  config.staging_bytes = std::size_t{16} << 20;
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks,
                     [&](Communicator& world) {
                       std::size_t count = 0;
                       auto const start = tensors(count, DataType::f32);
                       MemoryAccount const account;
                       MemoryAccount::Binding const bound(account);
                       std::vector<ShardedUnit> units;
                       for (Buffer const& one : start)
                         units.push_back({std::to_string(units.size()), {{{one.view()}, AdamWOptions{}}}});
                       FullySharded model(world, units);
                       double const share = static_cast<double>(count) / ranks;
                       expect_theory(account, MemoryKind::parameters, 4 * share, "fully sharded");
                       expect_theory(account, MemoryKind::gradients, 4 * share, "fully sharded");
                       expect_theory(account, MemoryKind::optimizer, 8 * share, "fully sharded");
                       FullyShardedMemory const own = model.memory();
                       expect_theory(account, MemoryKind::optimizer, static_cast<double>(own.optimizer),
                                     "by its own count");
                       // Two communicators of small staging memory, however much the world's take.
                       std::size_t const moved = account.usage(MemoryKind::communication).live;
                       EXPECT_GE(moved, own.gathered + own.gradients);
                       EXPECT_LE(moved, own.gathered + own.gradients + 2 * (small_ring() + (2U << 20U)));
                     },
                     {.config = config});
  }
}

TEST(MemoryReportTest, IsATable) {
  MemoryAccount const account(10 << 20);
  MemoryAccount::Binding const bound(account);
  MemoryCharge const charge(MemoryKind::optimizer, 3 << 20);
  std::string const report = format_memory_report(account);
  EXPECT_NE(report.find("optimizer states         3.00       3.00\n"), std::string::npos) << report;
  EXPECT_NE(report.find("budget                  10.00\n"), std::string::npos) << report;
}

}  // namespace
}  // namespace weft::test
