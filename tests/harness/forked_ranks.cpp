#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "core/bootstrap_fork.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int output = -1;  ///< a memfd: never fills up, needs no reader while the rank runs
};

[[noreturn]] void run_child(int rank, int output, std::function<int(int)> const& body) {
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  bool const failed_before = testing::Test::HasFailure();
  int code = kThrew;
  try {
    code = body(rank);
    if (!failed_before && testing::Test::HasFailure()) code = kExpectationFailed;
  } catch (Error const& error) {
    std::cerr << "rank " << rank << " threw " << to_string(error.code()) << ": " << error.what() << '\n';
  } catch (std::exception const& error) {
    std::cerr << "rank " << rank << " threw " << error.what() << '\n';
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);  // not exit(): the parent's atexit handlers and gtest's are none of this child's business
}

Child start(int rank, std::function<int(int)> const& body) {
  std::fflush(nullptr);
  Child child;
  child.output = memfd_create("weft-test-output", MFD_CLOEXEC);
  if (child.output < 0) throw std::runtime_error("memfd_create failed");
  fcntl(child.output, F_SETFL, O_APPEND);  // processes that share the file must not overwrite one another's lines
  child.pid = fork();
  if (child.pid < 0) throw std::runtime_error("fork failed");
  if (child.pid == 0) run_child(rank, child.output, body);
  return child;
}

std::string read_all(int descriptor) {
  std::string text;
  char block[4096];
  off_t offset = 0;
  for (ssize_t got = 0; (got = pread(descriptor, block, sizeof block, offset)) > 0; offset += got) {
    text.append(block, static_cast<std::size_t>(got));
  }
  return text;
}

bool reap(Child const& child, RankExit& exit) {
  int status = 0;
  pid_t const got = waitpid(child.pid, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return false;
  if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  return true;
}

std::vector<RankExit> wait_for_all(std::vector<Child> const& children, std::chrono::milliseconds limit) {
  Clock::time_point const start = Clock::now();
  std::vector<RankExit> exits(children.size());
  std::vector<bool> done(children.size(), false);
  for (std::size_t left = children.size(); left > 0;) {
    auto const elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (done[i]) continue;
      if (reap(children[i], exits[i])) {
        done[i] = true;
        exits[i].elapsed = elapsed;
        --left;
      } else if (elapsed > limit && !exits[i].timed_out) {
        exits[i].timed_out = true;
        kill(children[i].pid, SIGKILL);
      }
    }
    if (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    exits[i].output = read_all(children[i].output);
    close(children[i].output);
  }
  return exits;
}

std::vector<RankExit> fork_and_wait(int ranks, std::function<int(int)> const& body, std::chrono::milliseconds limit,
                                    std::function<void(int, pid_t)> const& started) {
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(start(rank, body));
    started(rank, children.back().pid);
  }
  return wait_for_all(children, limit);
}

}  // namespace

std::vector<RankExit> run_forked(int ranks, std::function<int(int)> const& body, std::chrono::milliseconds limit) {
  return fork_and_wait(ranks, body, limit, [](int, pid_t) {});
}

std::vector<RankExit> run_forked_bootstraps(int ranks, std::function<int(std::shared_ptr<Bootstrap>)> const& body,
                                            Config const& config, std::chrono::milliseconds limit) {
  std::vector<std::shared_ptr<Bootstrap>> bootstraps = fork_bootstraps(ranks, config);
  auto const child = [&](int rank) {
    std::shared_ptr<Bootstrap> mine = bootstraps[static_cast<std::size_t>(rank)];
    bootstraps.clear();
    return body(std::move(mine));
  };
  return fork_and_wait(ranks, child, limit,
                       [&](int rank, pid_t pid) { note_forked(*bootstraps[static_cast<std::size_t>(rank)], pid); });
}

std::vector<RankExit> run_forked_ranks(int ranks, std::function<int(Communicator&)> const& body,
                                       CommunicatorOptions const& options, std::chrono::milliseconds limit) {
  return run_forked_bootstraps(
      ranks,
      [&](std::shared_ptr<Bootstrap> bootstrap) {
        Communicator communicator = Communicator::create(std::move(bootstrap), options);
        return body(communicator);
      },
      options.config.value_or(Config{}), limit);
}

void expect_all_succeeded(std::vector<RankExit> const& exits) {
  for (std::size_t rank = 0; rank < exits.size(); ++rank) {
    RankExit const& exit = exits[rank];
    EXPECT_TRUE(exit.code == 0 && exit.signal == 0 && !exit.timed_out)
        << "rank " << rank << ": code " << exit.code << ", signal " << exit.signal
        << (exit.timed_out ? ", killed after its limit" : "") << '\n'
        << exit.output;
  }
}

void expect_no_children() {
  int status = 0;
  pid_t const left = waitpid(-1, &status, WNOHANG);
  EXPECT_TRUE(left == -1 && errno == ECHILD) << "a child process is left behind: " << left;
}

}  // namespace weft::test
