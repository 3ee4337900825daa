#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "checkpoint/sample_model.hpp"
#include "checkpoint/save_files.hpp"
#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/checkpoint.hpp"
#include "weft/error.hpp"

namespace {

/// Calls that change a file system, which this process may still make; below 0: no limit. The next one ends it, before
/// it has any effect.
std::atomic<int> g_calls_left{-1};

void count_call() {
  int left = g_calls_left.load();
  while (left >= 0 && !g_calls_left.compare_exchange_weak(left, left - 1)) {
  }
  if (left == 0) kill(getpid(), SIGKILL);
}

}  // namespace

// This program's own instead of the C library's.
extern "C" {
ssize_t write(int descriptor, void const* data, size_t bytes) {
  count_call();
  return syscall(SYS_write, descriptor, data, bytes);
}
int fsync(int descriptor) {
  count_call();
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}
int rename(char const* from, char const* to) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int mkdir(char const* path, mode_t mode) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int unlink(char const* path) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int rmdir(char const* path) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}
int unlinkat(int folder, char const* path, int flags) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_unlinkat, folder, path, flags));
}
}

namespace weft::test {
namespace {

constexpr int kSavers = 3;

int rounds_of(char const* variable, int otherwise) {
  char const* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::atoi(given);
}

void save(CheckpointSaver& saver, Communicator& world, std::uint32_t step, std::size_t largest) {
  SampleModel const model = sample_model(step, largest);
  saver.save(random_ranges(model, world.rank(), world.size(), step), {.step = step});
  saver.wait();
}

/// The step of a checkpoint that is whole; 0 where there is none.
std::uint32_t whole_step(std::string const& folder, std::size_t largest) {
  Checkpoint const checkpoint = Checkpoint::open(folder);
  auto const step = static_cast<std::uint32_t>(checkpoint.info().step);
  EXPECT_EQ(difference(checkpoint, sample_model(step, largest)), "") << "step " << step;
  return step;
}

TEST(CheckpointCrashTest, KilledBeforeAnyCallThatChangesTheFolder) {
  constexpr std::size_t kLargest = 30'000;
  constexpr int kAtAll = 100;  // more calls than a save makes
  TemporaryFolder const folder;
  std::string const path = folder.file("ck");
  std::uint32_t step = 0;
  int old_ones = 0;
  int new_ones = 0;
  for (int victim = 0; victim < kSavers; ++victim) {
    bool survived = false;
    for (int calls = 0; calls < kAtAll && !survived; ++calls) {
      auto const exits = run_forked_ranks(kSavers, [&](Communicator& world) {
        CheckpointSaver saver(world, path);
        save(saver, world, step + 1, kLargest);
        world.barrier();
        if (world.rank() == victim) g_calls_left = calls;
        try {
          save(saver, world, step + 2, kLargest);
          return 0;
        } catch (Error const&) {
          return 1;
        }
      });
      survived = exits[static_cast<std::size_t>(victim)].signal == 0;
      EXPECT_EQ(exits[static_cast<std::size_t>(victim)].timed_out, false);
      std::uint32_t const found = whole_step(path, kLargest);
      EXPECT_TRUE(found == step + 1 || found == step + 2) << found << " after " << step;
      for (auto const& exit : exits) {
        if (exit.signal != 0) continue;
        EXPECT_TRUE(exit.code == 0 || exit.code == 1) << exit.output;
        EXPECT_TRUE(exit.code == 1 || found == step + 2) << "a save that was reported is not there";
      }
      (found == step + 1 ? old_ones : new_ones) += 1;
      step += 2;
    }
    EXPECT_TRUE(survived) << "a save makes more than " << kAtAll << " calls";
    EXPECT_EQ(SaveFiles(path).entries(), 2U);  // what killed saves left was removed
  }
  EXPECT_GT(old_ones, 10);
  EXPECT_GT(new_ones, 3);
}

TEST(CheckpointCrashTest, KilledAtRandomMoments) {
  constexpr std::size_t kLargest = 500'000;
  int const rounds = rounds_of("WEFT_TEST_CRASH_ROUNDS", 10);
  TemporaryFolder const folder;
  std::string const path = folder.file("ck");
  auto* const reported = static_cast<std::atomic<std::uint32_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(reported), MAP_FAILED);
  *reported = 1;
  run_thread_ranks(1, [&](Communicator& world) {
    CheckpointSaver saver(world, path);
    save(saver, world, 1, kLargest);
  });
  std::mt19937 random(1234);
  for (int round = 0; round < rounds; ++round) {
    auto const delay = std::chrono::microseconds(random() % 100'000);
    int const victim = static_cast<int>(random() % (kSavers + 1));  // the last one: all
    std::uint32_t const before = *reported;
    auto const exits = run_forked_ranks(kSavers + 1, [&](Communicator& world) {
      std::vector<std::int64_t> const mine{getpid()};
      std::vector<std::int64_t> pids(kSavers + 1);
      world.all_gather(std::span<std::int64_t const>(mine), BufferView(std::span(pids))).wait();
      auto savers = world.split(world.rank() < kSavers ? 0 : Communicator::kNoColor);
      world.barrier();
      if (!savers) {
        std::this_thread::sleep_for(delay);
        for (int rank = 0; rank < kSavers; ++rank) {
          if (victim == rank || victim == kSavers)
            kill(static_cast<pid_t>(pids[static_cast<std::size_t>(rank)]), SIGKILL);
        }
        return 0;
      }
      try {
        CheckpointSaver saver(*savers, path);
        for (std::uint32_t step = before + 1;; ++step) {
          save(saver, *savers, step, kLargest);
          *reported = step;
        }
      } catch (Error const&) {
        return 1;
      }
    });
    for (int rank = 0; rank < kSavers; ++rank) {
      RankExit const& exit = exits[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(exit.signal == SIGKILL || exit.code == 1) << exit.output;
      EXPECT_FALSE(exit.timed_out);
    }
    std::uint32_t const found = whole_step(path, kLargest);
    EXPECT_TRUE(found == *reported || found == *reported + 1) << found << " after " << *reported;
    *reported = found;
  }
  munmap(reported, 4096);
}

/// A save that cannot be written fails on all ranks alike, leaves the one before, and another may follow.
void expect_failing_save(std::string const& path, std::size_t fits, std::size_t does_not, char const* reason,
                         std::optional<rlim_t> most = {}) {
  rlimit const unlimited{RLIM_INFINITY, RLIM_INFINITY};
  rlimit const limited{most.value_or(RLIM_INFINITY), RLIM_INFINITY};
  run_thread_ranks(3, [&](Communicator& world) {
    CheckpointSaver saver(world, path);
    save(saver, world, 1, fits);
    if (most) (void)setrlimit(RLIMIT_FSIZE, &limited);
    world.barrier();
    expect_error(ErrorCode::system, {"model-0000", reason}, [&] { save(saver, world, 2, does_not); });
    world.barrier();
    if (most) (void)setrlimit(RLIMIT_FSIZE, &unlimited);
    EXPECT_EQ(whole_step(path, fits), 1U);
    world.barrier();
    save(saver, world, 3, fits);
  });
  EXPECT_EQ(whole_step(path, fits), 3U);
  EXPECT_EQ(SaveFiles(path).entries(), 2U);
}

TEST(CheckpointCrashTest, AFileThatMayNotGrow) {
  TemporaryFolder const folder;
  expect_all_succeeded(run_forked(1, [&](int) {
    std::signal(SIGXFSZ, SIG_IGN);
    expect_failing_save(folder.file("ck"), 1000, 700'000, "File too large", 300'000);
    return 0;
  }));
}

TEST(CheckpointCrashTest, AFullDisk) {
  TemporaryFolder const folder;
  auto const exits = run_forked(1, [&](int) {
    bool const own = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (!own || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder.file("").c_str(), "tmpfs", 0, "size=1m") != 0) {
      return 77;
    }
    expect_failing_save(folder.file("ck"), 1000, 700'000, "No space left on device");
    return 0;
  });
  if (exits[0].code == 77) GTEST_SKIP() << "this process may not mount a file system of its own";
  expect_all_succeeded(exits);
}

TEST(CheckpointCrashTest, AFolderThatIsGone) {
  TemporaryFolder const folder;
  run_thread_ranks(2, [&](Communicator& world) {
    CheckpointSaver saver(world, folder.file("ck"));
    if (world.rank() == 0) std::filesystem::remove_all(folder.file("ck"));
    world.barrier();
    expect_error(ErrorCode::system, {folder.file("ck").c_str(), "No such file"}, [&] { save(saver, world, 1, 10); });
  });
}

}  // namespace
}  // namespace weft::test
