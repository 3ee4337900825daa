// What fork() does to a shared heap. Every test forks from a process of its own, which has no other threads.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "harness/ranks.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kBytes = 200'000;

/// fork() as pthread_atfork handlers would see it.
pid_t fork_around(SharedHeap& heap) {
  heap.before_fork();
  auto const child = ::fork();
  child == 0 ? heap.after_fork_in_child() : heap.after_fork_in_parent();
  return child;
}

int exit_code(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

void run_alone(std::function<int()> const& body) {
  expect_all_succeeded(run_forked(1, [&](int) { return body(); }));
}

TEST(SharedHeapFork, WhatTheChildWritesStaysItsOwn) {
  run_alone([] {
    auto const heap = SharedHeap::create(std::size_t{8} << 20U);
    auto* const block = static_cast<char*>(heap->allocate(kBytes));
    std::memset(block, 'p', kBytes);
    auto const child = fork_around(*heap);
    if (child == 0) {
      if (block[0] != 'p' || block[kBytes - 1] != 'p') ::_exit(1);
      std::memset(block, 'c', kBytes);
      if (heap->allocate(kBytes) != nullptr) ::_exit(2);
      heap->deallocate(block);
      ::_exit(block[kBytes / 2] == 'c' ? 0 : 3);
    }
    if (auto const code = exit_code(child); code != 0) return 10 + code;
    for (std::size_t i = 0; i < kBytes; ++i) {
      if (block[i] != 'p') return 1;
    }
    return heap->allocate(kBytes) != nullptr ? 0 : 2;
  });
}

/// Gathers what both ranks have written to `memory`; which rank's part is wrong, from 1, or 0.
int gather_from(float* memory, std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<SharedHeap> heap) {
  constexpr std::size_t kCount = std::size_t{1} << 20U;
  auto const rank = bootstrap->rank();
  auto world = Communicator::create(std::move(bootstrap), {.config = Config{}, .heap = std::move(heap)});
  std::fill_n(memory, kCount, static_cast<float>(rank + 1));
  std::vector<float> all(2 * kCount);
  world.all_gather(std::span<float const>(memory, kCount), std::span(all));
  if (std::count(all.begin(), all.begin() + kCount, 1.0F) != kCount) return 1;
  return std::count(all.begin() + kCount, all.end(), 2.0F) == kCount ? 0 : 2;
}

TEST(SharedHeapFork, NobodyLooksForWhatAChildSendsInItsParentsHeap) {
  expect_all_succeeded(run_forked_bootstraps(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    auto const heap = SharedHeap::create(std::size_t{16} << 20U);
    auto* const block = static_cast<float*>(heap->allocate(std::size_t{4} << 20U));
    std::memset(block, 0, std::size_t{4} << 20U);
    if (bootstrap->rank() == 0) return gather_from(block, std::move(bootstrap), heap);
    auto const child = fork_around(*heap);
    if (child == 0) ::_exit(gather_from(block, std::move(bootstrap), heap));
    auto const code = exit_code(child);
    return code == 0 ? 0 : 10 + code;
  }));
}

TEST(SharedHeapFork, TheParentReusesNoBlockThatALivingChildMayRead) {
  run_alone([] {
    auto const heap = SharedHeap::create(std::size_t{8} << 20U);
    auto* const block = static_cast<char*>(heap->allocate(kBytes));
    std::memset(block, 'p', kBytes);
    int go[2];
    if (::pipe(go) != 0) return 1;
    auto const child = fork_around(*heap);
    if (child == 0) {
      char byte = 0;
      if (::read(go[0], &byte, 1) != 1) ::_exit(1);
      for (std::size_t i = 0; i < kBytes; ++i) {
        if (block[i] != 'p') ::_exit(2);
      }
      ::_exit(0);
    }
    heap->deallocate(block);
    if (heap->usage().withheld < kBytes) return 2;
    // Blocks younger than the fork go round as ever.
    auto* const younger = static_cast<char*>(heap->allocate(kBytes));
    if (younger == nullptr || younger == block) return 3;
    std::memset(younger, 'x', kBytes);
    heap->deallocate(younger);
    if (heap->allocate(kBytes) != younger) return 4;
    std::size_t taken = 0;  // fill the heap: the child's block is not given
    while (auto* const more = static_cast<char*>(heap->allocate(kBytes))) {
      std::memset(more, 'x', kBytes);
      if (more == block) return 5;
      ++taken;
    }
    if (taken < 30 || ::write(go[1], "g", 1) != 1) return 6;
    if (auto const code = exit_code(child); code != 0) return 10 + code;
    if (heap->allocate(kBytes) != block) return 7;  // and now it is
    return heap->usage().withheld == 0 ? 0 : 8;
  });
}

TEST(SharedHeapFork, AChildThatRunsAnotherProgramHoldsNothingBack) {
  run_alone([] {
    auto const heap = SharedHeap::create(std::size_t{8} << 20U);
    auto* const block = heap->allocate(kBytes);
    int ready[2];
    if (::pipe(ready) != 0) return 1;
    auto const child = fork_around(*heap);
    if (child == 0) {
      ::dup2(ready[1], 1);
      ::execlp("sh", "sh", "-c", "echo; exec sleep 20", nullptr);
      ::_exit(1);
    }
    char byte = 0;
    if (::read(ready[0], &byte, 1) != 1) return 2;  // it runs the program
    heap->deallocate(block);
    auto const withheld = heap->usage().withheld;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return withheld == 0 ? 0 : 3;
  });
}

TEST(SharedHeapFork, AGrandchildCountsLikeTheChild) {
  run_alone([] {
    auto const heap = SharedHeap::create(std::size_t{8} << 20U);
    auto* const block = heap->allocate(kBytes);
    int go[2];
    if (::pipe(go) != 0) return 1;
    auto const child = fork_around(*heap);
    if (child == 0) {
      if (fork_around(*heap) != 0) ::_exit(0);
      char byte = 0;
      ::close(go[1]);
      ::_exit(::read(go[0], &byte, 1) == 1 ? 0 : 1);
    }
    if (auto const code = exit_code(child); code != 0) return 10 + code;
    heap->deallocate(block);
    if (heap->usage().withheld == 0) return 2;
    return ::write(go[1], "g", 1) == 1 ? 0 : 3;
  });
}

}  // namespace
}  // namespace weft::test
