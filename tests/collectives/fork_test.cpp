// What a child that a rank forks can do with its parent's communicator: nothing, and leave it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "harness/ranks.hpp"
#include "harness/sanitizers.hpp"
#include "weft/error.hpp"
#include "weft/group.hpp"
#include "weft/messenger.hpp"
#include "weft/stream.hpp"

namespace weft::test {
namespace {

/// 0 where the child's `body` returns true, and ends as a process does that may not hang.
int in_a_child(std::function<bool()> const& body) {
  auto const child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool is_refused(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.code() == ErrorCode::invalid_argument && std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

TEST(Fork, AChildsCallsAreRefusedAndItsParentsGoOn) {
  if (kThreadSanitizer) GTEST_SKIP() << "it does not follow a process with threads into its fork";
  expect_all_succeeded(run_forked_ranks(2, [](Communicator& world) {
    Stream const stream = Stream::cpu();
    Messenger messenger(world);
    float one = 1;
    BufferView const ones{&one, 1, DataType::f32};
    world.all_reduce(ones, ones, ReduceOp::sum, {.stream = stream}).wait();
    auto const peer = 1 - world.rank();
    int const code = in_a_child([&] {
      return is_refused([&] { world.all_reduce(ones, ones, ReduceOp::sum); }) &&
             is_refused([&] { world.all_reduce(ones, ones, ReduceOp::sum, {.stream = stream}); }) &&
             is_refused([&] { world.barrier(); }) && is_refused([&] { world.send(ones, peer); }) &&
             is_refused([&] { (void)world.allocate(1, DataType::f32); }) &&
             is_refused([&] { (void)world.duplicate(world.options()); }) &&
             is_refused([&] { (void)world.split(0, 0); }) && is_refused([&] { messenger.send(ones, peer); }) &&
             is_refused([&] { messenger.receive(ones, peer); });
    });
    if (code != 0) return 10 + code;
    // While this rank's thread is at it.
    float coming = 0;
    std::optional<Messenger> another(world);
    auto const receive = another->receive({&coming, 1, DataType::f32}, peer);
    (void)receive.wait_for(std::chrono::milliseconds(20));
    Group group(world);
    world.all_reduce(ones, ones, ReduceOp::sum);
    int const left = in_a_child([&] {
      auto const refused = is_refused([&] { receive.wait(); }) && is_refused([&] { (void)group.end(); });
      another.reset();
      return refused;
    });
    if (left != 0) return 20 + left;
    group.end();
    another->send(ones, peer).wait();
    receive.wait();
    float sum = 1;
    BufferView const sums{&sum, 1, DataType::f32};
    world.all_reduce(sums, sums, ReduceOp::sum);
    return sum == 2 ? 0 : 2;
  }));
}

TEST(Fork, AChildThatDestroysAndAbortsLeavesItsParentsAlone) {
  if (kThreadSanitizer) GTEST_SKIP() << "it does not follow a process with threads into its fork";
  expect_all_succeeded(run_forked_ranks(2, [](Communicator& given) {
    std::optional<Communicator> world = given.duplicate(given.options());
    std::optional<Stream> stream = Stream::cpu();
    float one = 1;
    BufferView const ones{&one, 1, DataType::f32};
    world->all_reduce(ones, ones, ReduceOp::sum, {.stream = *stream}).wait();
    int const code = in_a_child([&] {
      world->abort("a child's");
      world.reset();
      stream.reset();
      return true;
    });
    if (code != 0) return 10 + code;
    one = 1;
    world->all_reduce(ones, ones, ReduceOp::sum, {.stream = *stream}).wait();
    return one == 2 ? 0 : 2;
  }));
}

}  // namespace
}  // namespace weft::test
