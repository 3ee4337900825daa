// Whatever the table of algorithms says, every rank ends with the same, right data.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "collectives/merged_call.hpp"
#include "collectives/shm/peer_memory.hpp"
#include "collectives/shm/shm_backend.hpp"
#include "collectives/shm/tuner.hpp"
#include "harness/ranks.hpp"

namespace weft::shm {
namespace {

using Values = std::vector<std::int32_t>;

constexpr std::size_t kRing = std::size_t{192} << 10;

Plan plan_for(int ranks, bool share_work) {
  Topology topology;
  topology.l2_bytes = std::size_t{1} << 20;
  topology.l3_bytes = std::size_t{32} << 20;
  Config config;
  config.staging_bytes = kRing;
  Plan plan;
  plan.tuning = make_tuning(topology, config, ranks, share_work ? 1 : ranks, share_work);
  plan.tuning.inline_patience = {.spins = 10, .yields = 100};  // these ranks do share cores
  plan.tuning.group_ranks = ranks > 2 ? 2 : 0;
  plan.selector = Selector::derive(plan.tuning, ranks);
  return plan;
}

/// Limits, chunks and algorithms at random, of those that the memory allows.
Selector random_table(Plan const& plan, int ranks, std::mt19937& random) {
  auto const below = [&](std::size_t limit) { return random() % limit; };
  auto const block = StagingRing(nullptr, kRing).max_block();
  auto selector = plan.selector;
  for (std::size_t c = 0; c < kCollectives; ++c) {
    auto const collective = static_cast<Collective>(c);
    std::vector<Algorithm> staged{Algorithm::staged};
    auto const is_rooted = collective == Collective::gather || collective == Collective::scatter;
    if (collective == Collective::all_reduce) staged = {Algorithm::one_phase, Algorithm::two_phase, Algorithm::claimed};
    if (collective == Collective::reduce)
      staged = {Algorithm::fed, Algorithm::one_phase, Algorithm::two_phase, Algorithm::claimed};
    if (collective == Collective::broadcast || is_rooted) staged = {Algorithm::fed};
    if (collective == Collective::broadcast && plan.tuning.group_ranks > 0) staged.push_back(Algorithm::two_level);
    auto const swaps = plan.tuning.swap_bytes > 0 && ranks == 2 && collective != Collective::broadcast && !is_rooted &&
                       collective != Collective::scan;
    if (swaps) staged.push_back(Algorithm::swapped);
    auto const pick = [&](std::size_t up_to) {
      auto const algorithm = staged[below(staged.size())];
      auto const most = algorithm == Algorithm::swapped ? plan.tuning.swap_bytes : block;
      auto const least = static_cast<std::size_t>(ranks) * kLine;
      return Choice{up_to, least + below(most - least) / kLine * kLine, algorithm};
    };
    auto& rules = selector.rules(collective);
    auto const limit = 64 + below(100'000);
    rules.small = {pick(limit), pick(limit + below(100'000))};
    rules.other = {pick(limit + below(300'000)), pick(Choice::kUnlimited)};
    auto const fetches = collective == Collective::all_gather || collective == Collective::pull ||
                         collective == Collective::broadcast || is_rooted;
    if (fetches && below(2) == 0) rules.other[1] = {Choice::kUnlimited, 0, Algorithm::fetched};
    if (collective == Collective::scan) continue;
    auto const claimed = collective == Collective::all_reduce && below(2) == 0;
    auto const direct = claimed ? Choice{Choice::kUnlimited, kLine * (1 + below(500)), Algorithm::direct_claimed}
                                : Choice{Choice::kUnlimited, 0, Algorithm::direct};
    auto const some_staged = [&] {
      return below(2) == 0 ? Choices{direct} : Choices{pick(limit + below(500'000)), direct};
    };
    rules.symmetric = some_staged();
    rules.in_place = some_staged();
  }
  return selector;
}

/// One rank's calls on a bare backend.
class Caller {
 public:
  explicit Caller(ShmBackend& backend) : backend_(backend) {}

  Call next(Operation operation, std::size_t count, void const* send, void* recv, int root = 0) {
    Call call;
    call.contract = {.count = count,
                     .root = static_cast<std::uint32_t>(root),
                     .operation = operation,
                     .dtype = DataType::i32,
                     .reduce = ReduceOp::sum};
    call.sequence = ++calls_;
    call.send = send;
    call.recv = recv;
    call.timeout = std::chrono::seconds(30);
    return call;
  }

  std::shared_ptr<void> allocate(std::size_t count) {
    return backend_.allocate(next(Operation::allocate, count, nullptr, nullptr));
  }

  /// Runs every kind of collective over buffers of about `count` elements and checks what it leaves.
  void check(std::size_t count, std::int32_t* send, std::int32_t* recv, int root) {
    auto const ranks = static_cast<std::size_t>(backend_.size());
    auto const rank = static_cast<std::size_t>(backend_.rank());
    auto const part = count / ranks;
    auto const value = [](std::size_t of, std::size_t i) { return static_cast<std::int32_t>(of * 1000 + i % 997); };
    auto const sum = [&](std::size_t i) {
      std::int32_t total = 0;
      for (std::size_t r = 0; r < ranks; ++r) total += value(r, i);
      return total;
    };
    auto const refill = [&] {
      for (std::size_t i = 0; i < count; ++i) send[i] = value(rank, i), recv[i] = -1;
    };
    auto const expect = [&](char const* what, std::size_t n, auto const& wanted) {
      for (std::size_t i = 0; i < n; ++i) {
        if (recv[i] == wanted(i)) continue;
        ADD_FAILURE() << what << " of " << count << ", rank " << rank << ", element " << i << ": " << recv[i];
        return;
      }
    };
    auto const expect_sent = [&](char const* what) {
      for (std::size_t i = 0; i < count; ++i) {
        if (send[i] == value(rank, i)) continue;
        ADD_FAILURE() << what << " of " << count << ", rank " << rank << " sent " << send[i] << " at " << i;
        return;
      }
    };
    refill();
    backend_.all_reduce(next(Operation::all_reduce, count, send, recv));
    expect("all_reduce", count, sum);
    expect_sent("all_reduce");
    refill();
    std::copy_n(send, count, recv);
    backend_.all_reduce(next(Operation::all_reduce, count, recv, recv));
    expect("all_reduce in place", count, sum);
    refill();
    backend_.reduce(next(Operation::reduce, count, send, recv, root));
    if (static_cast<int>(rank) == root) expect("reduce", count, sum);
    expect_sent("reduce");
    refill();
    backend_.reduce_scatter(next(Operation::reduce_scatter, part, send, recv));
    expect("reduce_scatter", part, [&](std::size_t i) { return sum(rank * part + i); });
    refill();
    backend_.all_gather(next(Operation::all_gather, part, send, recv));
    expect("all_gather", part * ranks, [&](std::size_t i) { return value(i / part, i % part); });
    refill();
    std::copy_n(send, part, recv + rank * part);
    backend_.all_gather(next(Operation::all_gather, part, recv + rank * part, recv));
    expect("all_gather in place", part * ranks, [&](std::size_t i) { return value(i / part, i % part); });
    if (rank == 0) {  // one rank in place, the others not
      std::copy_n(send, part, recv);
      std::fill_n(recv + part, count - part, -1);
    } else {
      refill();
    }
    backend_.all_gather(next(Operation::all_gather, part, rank == 0 ? recv : send, recv));
    expect("all_gather half in place", part * ranks, [&](std::size_t i) { return value(i / part, i % part); });
    refill();
    backend_.all_to_all(next(Operation::all_to_all, part, send, recv));
    expect("all_to_all", part * ranks, [&](std::size_t i) { return value(i / part, rank * part + i % part); });
    expect_sent("all_to_all");
    refill();
    auto* const buffer = static_cast<int>(rank) == root ? send : recv;
    backend_.broadcast(next(Operation::broadcast, count, buffer, buffer, root));
    if (static_cast<int>(rank) != root) {
      expect("broadcast", count, [&](std::size_t i) { return value(static_cast<std::size_t>(root), i); });
    }
    refill();
    backend_.gather(next(Operation::gather, part, send, recv, root));
    if (static_cast<int>(rank) == root)
      expect("gather", part * ranks, [&](std::size_t i) { return value(i / part, i % part); });
    refill();
    backend_.scatter(next(Operation::scatter, part, send, recv, root));
    expect("scatter", part, [&](std::size_t i) { return value(static_cast<std::size_t>(root), rank * part + i); });
    refill();
    backend_.scan(next(Operation::scan, count, send, recv));
    expect("scan", count, [&](std::size_t i) {
      std::int32_t total = 0;
      for (std::size_t r = 0; r <= rank; ++r) total += value(r, i);
      return total;
    });
    backend_.barrier(next(Operation::barrier, 0, nullptr, nullptr));
  }

 private:
  ShmBackend& backend_;
  std::uint64_t calls_ = 0;
};

struct Tables : testing::TestWithParam<int> {};

TEST_P(Tables, AnyTableMovesTheRightData) {
  auto const ranks = GetParam();
  test::run_thread_bootstraps(ranks, [ranks](std::shared_ptr<Bootstrap> const& bootstrap) {
    for (bool const share_work : {false, true}) {
      auto const plan = plan_for(ranks, share_work);
      auto const backend = ShmBackend::assemble(*bootstrap, plan);
      Caller caller(*backend);
      constexpr std::size_t kMost = 150'000;
      auto const symmetric = caller.allocate(2 * kMost);
      Values other(2 * kMost);
      std::mt19937 random(static_cast<unsigned>(7 * ranks));
      for (int round = 0; round < 12; ++round) {
        backend->use(random_table(plan, ranks, random));
        backend->take_up_to(round % 3 == 0 ? 0 : round % 3 == 1 ? std::size_t{200} << 10 : Choice::kUnlimited);
        auto const count = static_cast<std::size_t>(ranks) + random() % (round % 2 == 0 ? 5000 : kMost - 10);
        auto* const memory = random() % 2 == 0 ? static_cast<std::int32_t*>(symmetric.get()) : other.data();
        caller.check(count, memory, memory + kMost, static_cast<int>(random() % static_cast<unsigned>(ranks)));
      }
      (void)bootstrap->all_gather({});
    }
  });
}

// Tables at random seldom go in one another's memory with so many bytes.
TEST_P(Tables, DirectCallsMoveTheRightDataWhetherLinesAreTakenOrNot) {
  auto const ranks = GetParam();
  test::run_thread_bootstraps(ranks, [ranks](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto plan = plan_for(ranks, false);
    for (auto const collective : kDirect) {
      auto& rules = plan.selector.rules(collective);
      rules.small = {};
      rules.symmetric = rules.in_place = {Choice{Choice::kUnlimited, 0, Algorithm::direct}};
    }
    auto const backend = ShmBackend::assemble(*bootstrap, plan);
    Caller caller(*backend);
    constexpr std::size_t kMost = 140'001;
    auto const symmetric = caller.allocate(2 * kMost);
    auto* const memory = static_cast<std::int32_t*>(symmetric.get());
    for (auto const take_bytes : {std::size_t{0}, std::size_t{100} << 10, Choice::kUnlimited}) {
      backend->take_up_to(take_bytes);
      for (std::size_t const count : {std::size_t{1000}, std::size_t{33'333}, kMost})
        caller.check(count, memory, memory + kMost, static_cast<int>(count % static_cast<unsigned>(ranks)));
    }
    (void)bootstrap->all_gather({});
  });
}

// Each rank's parts lie where it says, so that the others cannot tell from theirs whether it gathers in place.
TEST(TwoRanks, AllGatherPartsThatLieElsewhereOnEach) {
  test::run_thread_bootstraps(2, [](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto plan = plan_for(2, false);
    auto& rules = plan.selector.rules(Collective::all_gather);
    rules.small = {};
    rules.symmetric = {Choice{Choice::kUnlimited, 0, Algorithm::direct}};
    auto const backend = ShmBackend::assemble(*bootstrap, plan);
    backend->take_up_to(Choice::kUnlimited);
    Caller caller(*backend);
    constexpr std::size_t kCount = 25'000;  // of either
    auto const rank = static_cast<std::size_t>(bootstrap->rank());
    auto const symmetric = caller.allocate(3 * kCount);
    auto* const memory = static_cast<std::int32_t*>(symmetric.get());
    std::array<std::size_t, 2> const counts{kCount, kCount};
    // In place on none, one or both; with gaps of other lengths.
    for (int round = 0; round < 24; ++round) {
      std::array<std::size_t, 2> const offsets{0, kCount + 17 * rank};
      auto const in_place = (round >> rank) % 2 == 0;
      auto* const send = in_place ? memory + offsets[rank] : memory + 2 * kCount + 100;
      std::fill_n(memory, 2 * kCount + 100, -1);
      for (std::size_t i = 0; i < kCount; ++i) send[i] = static_cast<std::int32_t>(rank * 100'000 + i) + round;
      auto call = caller.next(Operation::all_gather_v, 2 * kCount, send, memory);
      call.recv_parts = {counts, offsets};
      backend->all_gather(call);
      for (std::size_t of = 0; of < 2; ++of) {
        for (std::size_t i = 0; i < kCount; ++i) {
          auto const expected = static_cast<std::int32_t>(of * 100'000 + i) + round;
          ASSERT_EQ(expected, memory[offsets[of] + i]) << "round " << round << ", rank " << of << ", element " << i;
        }
      }
    }
    (void)bootstrap->all_gather({});
  });
}

// Rank 0 explains, the others do not.
TEST_P(Tables, ExplainedBroadcastsGoTheSameWayOnEveryRank) {
  auto const ranks = GetParam();
  test::run_thread_bootstraps(ranks, [ranks](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto plan = plan_for(ranks, false);
    plan.explains = true;
    auto& rules = plan.selector.rules(Collective::broadcast);
    auto const chunk = rules.small[0].chunk_bytes;
    Choices const ways[] = {{},  // none is small: ranks negotiate
                            {Choice{Choice::kUnlimited, chunk, Algorithm::fed}},
                            {Choice{Choice::kUnlimited, chunk, Algorithm::two_level}}};
    for (auto const& way : ways) {
      if (way.front().algorithm == Algorithm::two_level && way.front().up_to > 0 && plan.tuning.group_ranks == 0)
        continue;
      rules.small = way;
      auto const backend = ShmBackend::assemble(*bootstrap, plan);
      Caller caller(*backend);
      std::array<std::int32_t, 20> values{};
      for (std::size_t const count : {0, 1, 14, 15, 20}) {  // 14: as much as rides in a line
        values.fill(bootstrap->rank() == 1 ? 7 : -1);
        backend->broadcast(caller.next(Operation::broadcast, count, values.data(), values.data(), 1));
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(7, values[i]) << count << ", element " << i;
      }
      (void)bootstrap->all_gather({});
    }
  });
}

// What lies between the calls takes part in sums, and shares the scales of what crosses hosts in fp8.
TEST(MergedCalls, AreFlatWithNothingInTheirGaps) {
  test::run_thread_bootstraps(2, [](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto const backend = ShmBackend::assemble(*bootstrap, plan_for(2, false));
    Caller caller(*backend);
    Values values(100, 5);
    constexpr MergeLimits kLimits{.each = 1 << 20, .together = 1 << 24};
    MergedCall merged(caller.next(Operation::all_reduce, 3, values.data(), values.data()), &Backend::all_reduce,
                      kLimits);
    merged.add(values.data() + 10, values.data() + 10, 0, 0);
    merged.add(values.data() + 20, values.data() + 20, 17, 0);
    merged.close();
    std::vector<std::byte> scratch(4096, std::byte{0xff});
    run_flat(*backend, merged, bootstrap->rank(), 2, scratch, [](Call const& flat) {
      auto const* const sent = static_cast<std::int32_t const*>(flat.send);
      EXPECT_EQ(20, std::count(sent, sent + flat.contract.count, 5));
      EXPECT_EQ(static_cast<std::ptrdiff_t>(flat.contract.count) - 20, std::count(sent, sent + flat.contract.count, 0));
    });
    (void)bootstrap->all_gather({});
  });
}

/// Whether every rank may read every other's memory: containers may forbid it.
bool all_reach_all(Bootstrap& bootstrap) {
  auto const tell = [&](auto const& mine) { return bootstrap.all_gather(std::as_bytes(std::span(&mine, 1))); };
  auto const raw = tell(describe_this_process());
  std::vector<PeerProcess> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(all.data(), raw.data(), raw.size());
  auto const mine = std::all_of(all.begin(), all.end(), can_reach);
  auto const reached = tell(static_cast<std::uint8_t>(mine ? 1 : 0));
  return std::all_of(reached.begin(), reached.end(), [](std::byte one) { return one == std::byte{1}; });
}

/// Whatever lies in private memory goes by the kernel, in these collectives.
Plan plan_that_fetches(int ranks, std::vector<Collective> const& collectives) {
  auto plan = plan_for(ranks, false);
  plan.tuning.reads_peers = true;
  for (auto const collective : collectives) {
    auto& rules = plan.selector.rules(collective);
    rules.small = {};
    rules.other = {Choice{Choice::kUnlimited, 0, Algorithm::fetched}};
  }
  return plan;
}

// Which of them are fetched at all depends on the machine, so that other tests may never come here.
TEST_P(Tables, WhatIsFetchedOutOfOtherProcessesIsRight) {
  auto const ranks = GetParam();
  auto const exits = test::run_forked_bootstraps(ranks, [ranks](std::shared_ptr<Bootstrap> const& bootstrap) {
    if (!all_reach_all(*bootstrap)) return 0;
    auto const plan = plan_that_fetches(ranks, {Collective::all_gather, Collective::pull, Collective::broadcast,
                                                Collective::gather, Collective::scatter});
    auto const backend = ShmBackend::assemble(*bootstrap, plan);
    Caller caller(*backend);
    constexpr std::size_t kMost = 400'000;
    Values memory(2 * kMost);
    for (std::size_t const count : {std::size_t{2000}, std::size_t{70'001}, kMost}) {
      for (int root = 0; root < ranks; ++root) caller.check(count, memory.data(), memory.data() + kMost, root);
    }
    (void)bootstrap->all_gather({});
    return 0;
  });
  test::expect_all_succeeded(exits);
}

// Feeds take more at once than the smallest rings.
TEST(TwoLevels, StageNoMoreAtOnceThanARingHolds) {
  constexpr int kRanks = 4;
  auto const exits = test::run_forked_bootstraps(kRanks, [](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto plan = plan_for(kRanks, false);
    plan.tuning.ring_bytes = std::size_t{16} << 10;
    auto& rules = plan.selector.rules(Collective::broadcast);
    rules.small = {Choice{Choice::kUnlimited, Feeds::block_bytes(Choice::kUnlimited), Algorithm::two_level}};
    auto const backend = ShmBackend::assemble(*bootstrap, plan);
    Caller caller(*backend);
    Values values(100'003);
    for (int root = 0; root < kRanks; ++root) {
      std::iota(values.begin(), values.end(), backend->rank() == root ? root : -1);
      backend->broadcast(caller.next(Operation::broadcast, values.size(), values.data(), values.data(), root));
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] != root + static_cast<std::int32_t>(i)) return 1;
      }
    }
    (void)bootstrap->all_gather({});
    return 0;
  });
  test::expect_all_succeeded(exits);
}

// The kernel copies for as long as it takes, whatever has become of the call meanwhile.
TEST(FetchedCalls, WhoeverLentMemoryHasItBackWhenTheyFail) {
  constexpr std::size_t kCount = std::size_t{128} << 20;  // of each rank: takes some 100 ms
  constexpr std::size_t kSeen = 1024;
  auto const exits = test::run_forked_bootstraps(3, [](std::shared_ptr<Bootstrap> const& bootstrap) {
    if (!all_reach_all(*bootstrap)) return 0;
    auto const plan = plan_that_fetches(3, {Collective::gather});
    auto const backend = ShmBackend::assemble(*bootstrap, plan);
    Caller caller(*backend);
    auto const rank = bootstrap->rank();
    // Never written here: the less memory rank 1 has the sooner its process is gone.
    std::unique_ptr<std::int32_t[]> const memory(new std::int32_t[rank == 0 ? 3 * kCount : kCount]);
    // In place on the root, which copies nothing before it waits for the others.
    auto const call = caller.next(Operation::gather, kCount, memory.get(), rank == 0 ? memory.get() : nullptr, 0);
    if (rank == 1) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ::raise(SIGKILL);
      }).detach();
    }
    try {
      backend->gather(call);
      return rank == 0 ? 2 : 0;  // who gives may be through before anybody knows
    } catch (Error const&) {
      if (rank != 0) return 0;
      auto* const last = memory.get() + 3 * kCount - kSeen;
      std::fill_n(last, kSeen, -7);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return std::count(last, last + kSeen, -7) == kSeen ? 0 : 1;
    }
  });
  EXPECT_EQ(0, exits[0].code) << "rank 2 wrote on: " << exits[0].output;
  EXPECT_EQ(0, exits[2].code) << exits[2].output;
}

// The kernel says only that there is no such memory.
TEST(FetchedCalls, ARankThatDiesMeanwhileIsNamed) {
  auto const exits = test::run_forked_bootstraps(3, [](std::shared_ptr<Bootstrap> const& bootstrap) {
    if (!all_reach_all(*bootstrap)) ::raise(SIGKILL);
    auto const plan = plan_that_fetches(3, {Collective::broadcast});
    auto const backend = ShmBackend::assemble(*bootstrap, plan);
    Caller caller(*backend);
    Values values(std::size_t{4} << 20);
    if (bootstrap->rank() == 1) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ::raise(SIGKILL);
      }).detach();
    }
    try {
      for (;;) backend->broadcast(caller.next(Operation::broadcast, values.size(), values.data(), values.data(), 1));
    } catch (Error const& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return error.code() == ErrorCode::peer_lost && std::string(error.what()).find("rank 1") != std::string::npos ? 0
                                                                                                                   : 1;
    }
  });
  if (exits[0].signal == SIGKILL) GTEST_SKIP() << "the kernel lets no rank read another's memory";
  EXPECT_EQ(SIGKILL, exits[1].signal);
  for (std::size_t const rank : {0U, 2U}) EXPECT_EQ(0, exits[rank].code) << exits[rank].output;
}

// A merged call is flat, and what is flat is staged, whatever was measured of plain calls.
TEST_P(Tables, MergedAllGathersAreStagedWherePlainOnesAreFetched) {
  auto const ranks = GetParam();
  test::run_thread_bootstraps(ranks, [ranks](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto plan = plan_for(ranks, false);
    auto const staged = plan.selector.rules(Collective::pull).other.front();
    constexpr std::size_t kStaged = 1024;
    plan.selector.rules(Collective::all_gather).other = {Choice{kStaged, staged.chunk_bytes, staged.algorithm},
                                                         Choice{Choice::kUnlimited, 0, Algorithm::fetched}};
    auto const backend = ShmBackend::assemble(*bootstrap, plan);
    Caller caller(*backend);
    constexpr std::size_t kCalls = 40;
    constexpr std::size_t kCount = 5000;
    Values send(kCalls * kCount);
    Values recv(kCalls * kCount * static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < send.size(); ++i)
      send[i] = static_cast<std::int32_t>(1'000'000 * bootstrap->rank()) + static_cast<std::int32_t>(i);
    auto const part_of = [&](std::size_t call) {
      return recv.data() + call * kCount * static_cast<std::size_t>(ranks);
    };
    constexpr MergeLimits kLimits{.each = 1 << 20, .together = 1 << 24};
    MergedCall merged(caller.next(Operation::all_gather, kCount, send.data(), recv.data()), &Backend::all_gather,
                      kLimits);
    for (std::size_t call = 1; call < kCalls; ++call) merged.add(send.data() + call * kCount, part_of(call), kCount, 0);
    merged.close();
    merged.run(*backend);
    for (std::size_t call = 0; call < kCalls; ++call) {
      for (std::size_t i = 0; i < kCount * static_cast<std::size_t>(ranks); ++i) {
        auto const expected = 1'000'000 * (i / kCount) + call * kCount + i % kCount;
        ASSERT_EQ(static_cast<std::int32_t>(expected), part_of(call)[i]) << "call " << call << ", element " << i;
      }
    }
    (void)bootstrap->all_gather({});
  });
}

TEST_P(Tables, MeasuringLeavesNothingBehind) {
  auto const ranks = GetParam();
  test::run_thread_bootstraps(ranks, [ranks](std::shared_ptr<Bootstrap> const& bootstrap) {
    auto const plan = plan_for(ranks, false);
    auto const scratch = ShmBackend::assemble(*bootstrap, plan);
    auto const start = std::chrono::steady_clock::now();
    auto const model = measure(*scratch, plan.selector, plan.tuning, std::chrono::seconds(30));
    auto const took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took, std::chrono::seconds(20)) << "it is bounded even where ranks take turns";
    if (bootstrap->rank() == 0 && model.is_measured()) {
      // Of a collective all is known that it uses, or nothing where there was no time for all.
      auto const expect = [&](Collective collective, Algorithm algorithm, bool used) {
        auto const known = model.of(collective, Algorithm::direct).is_known();
        EXPECT_EQ(used && known, model.of(collective, algorithm).is_known()) << to_string(algorithm);
      };
      auto const& small = plan.selector.rules(Collective::all_reduce).small;
      for (auto const algorithm : {Algorithm::swapped, Algorithm::two_phase})
        expect(Collective::all_reduce, algorithm, small[0].algorithm == algorithm || small[1].algorithm == algorithm);
      expect(Collective::broadcast, Algorithm::fed, true);
      expect(Collective::broadcast, Algorithm::two_level, plan.tuning.group_ranks > 0);
    }
    (void)bootstrap->all_gather({});
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Tables, testing::Values(2, 3, 4, 7));

TEST(Groups, AreRanksThatShareACache) {
  EXPECT_EQ(0, group_size({0, 0, 0, 0})) << "one cache, few ranks";
  EXPECT_EQ(2, group_size({0, 0, 1, 1}));
  EXPECT_EQ(4, group_size({3, 3, 3, 3, 1, 1, 1, 1}));
  EXPECT_EQ(0, group_size({0, 1, 0, 1})) << "not in rank order";
  EXPECT_EQ(0, group_size({0, 0, 1, 1, 0, 0})) << "a cache comes back";
  EXPECT_EQ(0, group_size({0, 0, 0, 1})) << "unequal";
  EXPECT_EQ(0, group_size({0, 1, 2, 3})) << "nobody to share with";
  EXPECT_EQ(4, group_size(std::vector<int>(16, 0))) << "a tree of two levels";
  EXPECT_EQ(8, group_size(std::vector<int>(64, 5)));
}

}  // namespace
}  // namespace weft::shm
