#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/shm/fd_passing.hpp"
#include "collectives/shm/segment.hpp"
#include "collectives/shm/symmetric_heap.hpp"
#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::test {
namespace {

TEST(SymmetricMemory, IsZeroFilledSeparatePerRankAndOutlivesTheCommunicator) {
  run_thread_ranks(3, [](Communicator& world) {
    Buffer kept;
    {
      auto inner = world.duplicate({});
      kept = inner.allocate(100'000, DataType::i32);
    }
    for (auto const value : kept.as<std::int32_t>()) ASSERT_EQ(0, value);
    for (auto& value : kept.as<std::int32_t>()) value = world.rank();
    world.barrier();
    for (auto const value : kept.as<std::int32_t>()) ASSERT_EQ(world.rank(), value);
  });
}

/// A tree of control groups in which this process would be.
class ControlGroups {
 public:
  explicit ControlGroups(std::string const& membership) { write(own_, membership + "\n"); }

  /// `file` lies below the root, and its folders come with it.
  void set(std::string const& file, std::string const& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    write(root_ / file, text + "\n");
  }
  [[nodiscard]] std::size_t available() const { return shm::available_memory(root_, own_); }

 private:
  static void write(std::filesystem::path const& file, std::string const& text) { std::ofstream(file) << text; }

  TemporaryFolder folder_;
  std::filesystem::path root_ = folder_.file("groups");
  std::filesystem::path own_ = folder_.file("own");
};

// As in a container with a limit whose programs have read many files.
TEST(SymmetricMemory, WhatThePageCacheHoldsIsAvailable) {
  ControlGroups const groups("0::/");
  groups.set("memory.max", "1000000");
  groups.set("memory.current", "999000");
  EXPECT_EQ(1000U, groups.available());
  groups.set("memory.stat",
             "anon 39000\nfile 960000\nshmem 10000\ninactive_anon 40000\n"
             "inactive_file 700000\nactive_file 200000\nunevictable 0");
  EXPECT_EQ(901'000U, groups.available());
  groups.set("memory.max", "max");
  EXPECT_LT(1'000'000U, groups.available()) << "as much as the machine has";
}

// As under a batch system, which limits the job and not the step that the process is of.
TEST(SymmetricMemory, TheLimitMayBeOfAGroupFurtherUp) {
  ControlGroups const groups("0::/system.slice/job_7/step_0");
  groups.set("system.slice/job_7/memory.max", "500000");
  groups.set("system.slice/job_7/memory.current", "200000");
  groups.set("system.slice/job_7/step_0/memory.max", "max");
  groups.set("system.slice/job_7/step_0/memory.current", "100000");
  groups.set("system.slice/job_8/memory.max", "1000");
  groups.set("system.slice/job_8/memory.current", "0");
  EXPECT_EQ(300'000U, groups.available());
}

TEST(SymmetricMemory, GroupsOfVersion1LimitAsWell) {
  ControlGroups const groups("5:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n0::/");
  groups.set("memory/a/memory.limit_in_bytes", "500000");
  groups.set("memory/a/memory.usage_in_bytes", "200000");
  groups.set("memory/a/memory.stat", "inactive_file 9\ntotal_inactive_file 20000\ntotal_active_file 3000");
  groups.set("memory/a/b/memory.limit_in_bytes", "9223372036854771712");  // none
  groups.set("memory/a/b/memory.usage_in_bytes", "100000");
  EXPECT_EQ(323'000U, groups.available());
}

// A container may be told the whole machine's name of its group, and sees that as the root.
TEST(SymmetricMemory, AContainersGroupIsTheRoot) {
  ControlGroups const groups("4:memory:/docker/0123abcd");
  groups.set("memory/memory.limit_in_bytes", "500000");
  groups.set("memory/memory.usage_in_bytes", "200000");
  EXPECT_EQ(300'000U, groups.available());
}

#if defined(__x86_64__)
/// Lets madvise() know as little of MADV_POPULATE_WRITE as before Linux 5.14, in this process for good; whether it
/// does.
bool forget_populating() {
  constexpr unsigned kPopulateWrite = 23;
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPopulateWrite, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog const filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(SymmetricMemory, RanksOfOneProcessHaveItOnOlderKernelsToo) {
  constexpr int kNoFilters = 77;
  auto const exits = run_forked(1, [](int) {
    if (!forget_populating()) return kNoFilters;
    run_thread_ranks(3, [](Communicator& world) {
      auto const buffer = world.allocate(100'000, DataType::i32);
      world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
    });
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  if (exits[0].code == kNoFilters) GTEST_SKIP() << "no system call filters here";
  expect_all_succeeded(exits);
}
#endif

TEST(SymmetricMemory, ReleasedBuffersAreNotMistakenForNewOnes) {
  run_thread_ranks(2, [](Communicator& world) {
    constexpr std::size_t kCount = 300'000;
    for (int round = 0; round < 6; ++round) {
      auto buffer = world.allocate(kCount, DataType::f32);
      if (world.rank() == round % 2) buffer = Buffer::host(kCount, DataType::f32);  // may reuse the address
      for (auto& value : buffer.as<float>()) value = 2.0F;
      world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
      ASSERT_EQ(4.0F, buffer.as<float>()[kCount - 1]);
    }
  });
}

/// Every rank's buffers lie in allocations of its choice; some ranks have released what others use.
int use_different_allocations(Communicator& world) {
  constexpr std::size_t kCount = 300'000;
  constexpr int kBuffers = 4;
  constexpr int kTurns = 40;
  std::mt19937 shared(7);  // alike on all ranks
  std::vector<Buffer> buffers(kBuffers);
  auto const value = [](int rank, int turn) { return static_cast<float>(100 * turn + rank); };
  auto const is_filled = [](Buffer const& buffer, float with) {
    auto const all = buffer.as<float>();
    return std::all_of(all.begin(), all.end(), [&](float each) { return each == with; });
  };
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn % 8 == 0) {
      for (auto& buffer : buffers) buffer = world.allocate(kCount, DataType::f32);
      auto const releases = static_cast<int>(shared() % static_cast<unsigned>(world.size()));
      if (turn > 0 && world.rank() == releases) buffers.back() = Buffer::host(kCount, DataType::f32);
    }
    std::vector<std::size_t> picks(2 * static_cast<std::size_t>(world.size()));
    for (auto& pick : picks) pick = shared() % kBuffers;
    auto& send = buffers[picks[2 * static_cast<std::size_t>(world.rank())]];
    auto& recv = buffers[picks[2 * static_cast<std::size_t>(world.rank()) + 1]];
    auto const root = turn % world.size();
    std::fill_n(send.as<float>().data(), kCount, value(world.rank(), turn));
    world.broadcast(send.view(), root);
    if (!is_filled(send, value(root, turn))) return 1;
    world.barrier();
    std::fill_n(send.as<float>().data(), kCount, value(world.rank(), turn));
    world.all_reduce(send.view(), recv.view(), ReduceOp::max);
    if (!is_filled(recv, value(world.size() - 1, turn))) return 2;
    world.barrier();
  }
  return 0;
}

TEST(SymmetricMemory, RanksMayUseDifferentAllocations) {
  for (int const ranks : {2, 3}) expect_all_succeeded(run_forked_ranks(ranks, use_different_allocations));
  run_thread_ranks(4, [](Communicator& world) { EXPECT_EQ(0, use_different_allocations(world)); });
}

TEST(SymmetricMemory, MayBeReleasedByAnotherThreadWhileOthersUseIt) {
  run_thread_ranks(2, [](Communicator& world) {
    constexpr std::size_t kCount = 200'000;
    for (int round = 0; round < 200; ++round) {
      auto first = world.allocate(kCount, DataType::f32);
      auto second = world.allocate(kCount, DataType::f32);
      auto const& used = world.rank() == 0 ? first : second;
      auto& left = world.rank() == 0 ? second : first;
      std::fill_n(used.as<float>().data(), kCount, 1.0F);
      std::thread releases([&] { left = Buffer(); });
      world.all_reduce(used.view(), used.view(), ReduceOp::sum);
      releases.join();
      ASSERT_EQ(2.0F, used.as<float>()[kCount / 3]);
    }
  });
}

TEST(SymmetricMemory, ExhaustionIsAnErrorOnEveryRank) {
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    try {
      static_cast<void>(world.allocate(std::size_t{1} << 46U, DataType::u8));
      return 1;
    } catch (Error const& error) {
      if (error.code() != ErrorCode::out_of_memory) return 2;
      if (std::string(error.what()).find("bytes") == std::string::npos) return 3;
    }
    auto small = world.allocate(1000, DataType::f32);  // the communicator still works
    world.all_reduce(small.view(), small.view(), ReduceOp::sum);
    return 0;
  });
  expect_all_succeeded(exits);
}

TEST(SymmetricMemory, OnlyTheRootsIsLeft) {
  constexpr std::size_t kCount = 200'000;
  auto const exits = run_forked_ranks(3, [](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    auto shared = world.allocate(ranks * kCount, DataType::f32);
    if (world.rank() != 1) shared = Buffer();  // rank 1 keeps what nobody else holds any more
    auto mine = Buffer::host(ranks * kCount, DataType::f32);
    auto const part = [](Buffer const& buffer, std::size_t count) {
      return BufferView{buffer.view().data, count, DataType::f32};
    };
    std::fill_n(static_cast<float*>(mine.view().data), kCount, static_cast<float>(world.rank()));
    auto const result = world.rank() == 1 ? shared.view() : BufferView{nullptr, 0, DataType::f32};
    world.gather(part(mine, kCount), result, 1);
    if (world.rank() == 1 && static_cast<float const*>(result.data)[2 * kCount + 7] != 2.0F) return 1;
    world.scatter(result, part(mine, kCount), 1);
    if (static_cast<float const*>(mine.view().data)[kCount - 1] != static_cast<float>(world.rank())) return 2;
    auto const sum = world.rank() == 1 ? part(shared, kCount) : BufferView{nullptr, 0, DataType::f32};
    world.reduce(part(mine, kCount), sum, ReduceOp::sum, 1);
    if (world.rank() == 1 && static_cast<float const*>(sum.data)[5] != 3.0F) return 3;
    return 0;
  });
  expect_all_succeeded(exits);
}

/// What ranks move in one another's buffers has arrived, and was read, when a rank returns that uses its buffer anew:
/// the root waits for all others, though they do not wait for each other.
int use_buffers_again_at_once(Communicator& world) {
  constexpr std::size_t kPart = 300'000;
  auto const ranks = static_cast<std::size_t>(world.size());
  auto const rank = static_cast<std::uint32_t>(world.rank());
  auto const whole = world.allocate(ranks * kPart, DataType::u32);
  auto const part = world.allocate(kPart, DataType::u32);
  auto const all = whole.as<std::uint32_t>();
  auto const own = part.as<std::uint32_t>();
  auto const value = [](std::uint32_t of, std::size_t i) { return of * 1'000'003 + static_cast<std::uint32_t>(i); };
  auto const holds = [&](std::span<std::uint32_t> range, std::uint32_t of, std::size_t from) {
    for (std::size_t i = 0; i < range.size(); ++i) {
      if (range[i] != value(of, from + i)) return false;
    }
    return true;
  };
  for (int root = 0; root < 2 * world.size(); ++root) {
    auto const is_root = world.rank() == root % world.size();
    auto const turn = static_cast<std::uint32_t>(root);
    auto const at_root = is_root ? whole.view() : BufferView{nullptr, 0, DataType::u32};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(turn, i);
    world.scatter(at_root, part.view(), root % world.size());
    std::fill(all.begin(), all.end(), 0);
    if (!holds(own, turn, rank * kPart)) return 1;
    for (std::size_t i = 0; i < kPart; ++i) own[i] = value(turn + 1, rank * kPart + i);
    world.gather(part.view(), at_root, root % world.size());
    std::fill(own.begin(), own.end(), 0);
    if (is_root && !holds(all, turn + 1, 0)) return 2;
    if (is_root) std::for_each(all.begin(), all.end(), [](std::uint32_t& each) { ++each; });
    world.broadcast(whole.view(), root % world.size());
    if (!is_root && (all.front() != value(turn + 1, 0) + 1 || all[kPart] != value(turn + 1, kPart) + 1 ||
                     all.back() != value(turn + 1, all.size() - 1) + 1))
      return 3;
    std::fill(all.begin(), all.end(), 0);
  }
  return 0;
}

TEST(SymmetricMemory, RootsAndOthersUseTheirBuffersAgainAtOnce) {
  for (int const ranks : {2, 5}) {
    expect_all_succeeded(run_forked_ranks(ranks, use_buffers_again_at_once));
  }
  run_thread_ranks(3, [](Communicator& world) { EXPECT_EQ(0, use_buffers_again_at_once(world)); });
}

TEST(FdPassing, DeliversTheDescriptorToThoseWhoKnowTheToken) {
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  std::promise<void> listening;
  auto sender = std::async(std::launch::async,
                           [&] { return shm::send_descriptor(ends[1], 4242, 1, [&] { listening.set_value(); }); });
  listening.get_future().wait();
  int error = 0;
  int const received = shm::receive_descriptor(4242, error);
  ASSERT_GE(received, 0) << error;
  EXPECT_EQ(0, sender.get());
  ASSERT_EQ(1, ::write(received, "x", 1));
  char byte = 0;
  ASSERT_EQ(1, ::read(ends[0], &byte, 1));
  EXPECT_EQ('x', byte);
  EXPECT_EQ(-1, shm::receive_descriptor(4243, error)) << "nobody listens under another token";
  for (int const fd : {ends[0], ends[1], received}) ::close(fd);
}

}  // namespace
}  // namespace weft::test
