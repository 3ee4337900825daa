#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "harness/ranks.hpp"
#include "harness/tally.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::RankExit;

/// What rank `rank` contributes to exchange `index`; every rank can work out everybody's.
std::vector<std::byte> contribution(int rank, std::size_t index, std::size_t bytes) {
  std::minstd_rand random(static_cast<unsigned>(rank * 7919 + static_cast<int>(index) + 1));
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random() >> 8U);
  return data;
}

/// A series of exchanges around the slot size (4096) and back, with ranks arriving at different times.
void exchange_and_check(Bootstrap& bootstrap) {
  std::size_t const sizes[] = {8, 0, 1, 4095, 4096, 4097, 3, 12289, 64, 64, 64};
  std::minstd_rand random(static_cast<unsigned>(bootstrap.rank() + 1));
  std::size_t index = 0;
  for (std::size_t const bytes : sizes) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    std::vector<std::byte> const all = bootstrap.all_gather(contribution(bootstrap.rank(), index, bytes));
    std::vector<std::byte> wanted;
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
      std::vector<std::byte> const part = contribution(rank, index, bytes);
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    ASSERT_EQ(all, wanted) << "rank " << bootstrap.rank() << ", exchange " << index;
    ++index;
  }
}

Config with_timeout(std::chrono::milliseconds timeout) {
  Config config;
  config.timeout = timeout;
  return config;
}

/// The message of the Error that `call` throws, after its code: "peer_lost: rank 1 died …".
template <typename Call>
std::string failure_of(Call const& call) {
  try {
    call();
  } catch (Error const& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

void expect_contains(std::string const& text, std::string const& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\ndoes not contain\n" << part;
}

TEST(SingleBootstrap, GathersItself) {
  auto const bootstrap = single_bootstrap();
  EXPECT_EQ(bootstrap->size(), 1);
  EXPECT_EQ(bootstrap->name(), "single");
  exchange_and_check(*bootstrap);
}

TEST(ThreadBootstrap, GathersInRankOrder) {
  for (int const ranks : {1, 2, 3, 8}) {
    test::run_thread_bootstraps(ranks, [](std::shared_ptr<Bootstrap> mine) { exchange_and_check(*mine); });
  }
}

TEST(ThreadBootstrap, NamesARankThatLeft) {
  std::string seen;
  test::run_thread_bootstraps(3, [&](std::shared_ptr<Bootstrap> mine) {
    std::byte const byte{};
    if (mine->rank() == 1) return;
    std::string const failure = failure_of([&] { (void)mine->all_gather({&byte, 1}); });
    if (mine->rank() == 0) seen = failure;
  });
  expect_contains(seen, "peer_lost: rank 1 left");
}

TEST(ThreadBootstrap, NamesARankThatIsLate) {
  auto const bootstraps = thread_bootstraps(2, with_timeout(50ms));
  std::byte const byte{};
  std::string const failure = failure_of([&] { (void)bootstraps[0]->all_gather({&byte, 1}); });
  expect_contains(failure, "timeout: rank 1 did not join");
  expect_contains(failure, "50 ms");
  expect_contains(failure, "WEFT_TIMEOUT");
}

TEST(ThreadBootstrap, FindsUnequalSizes) {
  test::run_thread_bootstraps(2, [&](std::shared_ptr<Bootstrap> mine) {
    std::vector<std::byte> const data(mine->rank() == 0 ? 4U : 5U);
    expect_contains(failure_of([&] { (void)mine->all_gather(data); }), "mismatch: start-up exchange");
  });
}

TEST(ThreadBootstrap, RefusesRankCountsThatNobodyHas) {
  expect_contains(failure_of([] { (void)thread_bootstraps(0); }), "invalid_argument");
  expect_contains(failure_of([] { (void)fork_bootstraps(-1); }), "invalid_argument");
  expect_contains(failure_of([] { (void)fork_bootstraps(100000); }), "expected 1 to 1024");
}

TEST(ForkBootstrap, GathersInRankOrder) {
  for (int const ranks : {1, 2, 5, 16}) {
    test::expect_all_succeeded(test::run_forked_bootstraps(ranks, [](std::shared_ptr<Bootstrap> mine) {
      exchange_and_check(*mine);
      return 0;
    }));
  }
  test::expect_no_children();
}

TEST(ForkBootstrap, FindsUnequalSizes) {
  auto const exits = test::run_forked_bootstraps(3, [](std::shared_ptr<Bootstrap> mine) {
    std::vector<std::byte> const data(mine->rank() == 2 ? 9000U : 10U);
    (void)mine->all_gather(data);
    return 0;
  });
  for (RankExit const& exit : exits) {
    EXPECT_EQ(exit.code, test::kThrew);
    expect_contains(exit.output, "mismatch: start-up exchange");
  }
}

/// How rank 1 goes, and what the others say of it.
struct Departure {
  char const* name;
  void (*leave)(std::shared_ptr<Bootstrap>&);
  char const* said;
};

class ForkedRankGone : public testing::TestWithParam<Departure> {};

TEST_P(ForkedRankGone, IsNamedLongBeforeTheTimeLimit) {
  auto const exits = test::run_forked_bootstraps(4, [](std::shared_ptr<Bootstrap> mine) {
    std::byte const byte{};
    (void)mine->all_gather({&byte, 1});
    if (mine->rank() == 1) {
      std::this_thread::sleep_for(20ms);  // the others are waiting by now
      GetParam().leave(mine);
      return 0;
    }
    (void)mine->all_gather({&byte, 1});
    return 0;
  });
  for (int const rank : {0, 2, 3}) {
    RankExit const& exit = exits[static_cast<std::size_t>(rank)];
    EXPECT_EQ(exit.code, test::kThrew) << exit.output;
    EXPECT_LT(exit.elapsed, test::kNoticed);
    expect_contains(exit.output, std::string("peer_lost: rank 1 ") + GetParam().said);
  }
  test::expect_no_children();
}

INSTANTIATE_TEST_SUITE_P(Ways, ForkedRankGone,
                         testing::Values(Departure{"killed", [](auto&) { kill(getpid(), SIGKILL); }, "died"},
                                         Departure{"exited", [](auto&) { _exit(0); }, "died"},
                                         Departure{"left", [](auto& mine) { mine.reset(); }, "left"}),
                         [](auto const& test) { return std::string(test.param.name); });

TEST(ForkBootstrap, NamesARankThatDiedBeforeItsFirstCall) {
  auto const exits = test::run_forked_bootstraps(3, [](std::shared_ptr<Bootstrap> mine) {
    if (mine->rank() == 2) kill(getpid(), SIGKILL);
    std::byte const byte{};
    (void)mine->all_gather({&byte, 1});
    return 0;
  });
  EXPECT_EQ(exits[2].signal, SIGKILL);
  for (int const rank : {0, 1}) {
    RankExit const& exit = exits[static_cast<std::size_t>(rank)];
    EXPECT_LT(exit.elapsed, test::kNoticed);
    expect_contains(exit.output, "peer_lost: rank 2 died");
  }
}

TEST(ForkBootstrap, NamesEveryRankThatIsLate) {
  test::Tally gave_up;
  test::expect_all_succeeded(test::run_forked_bootstraps(
      4,
      [&](std::shared_ptr<Bootstrap> mine) {
        if (mine->rank() % 2 == 1) {
          gave_up.await(2);
          return 0;
        }
        std::byte const byte{};
        expect_contains(failure_of([&] { (void)mine->all_gather({&byte, 1}); }), "timeout: rank 1, 3 did not join");
        gave_up.add();
        return 0;
      },
      with_timeout(test::kImpatience)));
}

TEST(ForkBootstrap, ARankMayLeaveAfterTheLastExchange) {
  test::expect_all_succeeded(test::run_forked_bootstraps(4, [](std::shared_ptr<Bootstrap> mine) {
    std::byte const byte{};
    if (mine->rank() == 3) std::this_thread::sleep_for(50ms);
    (void)mine->all_gather({&byte, 1});
    return 0;
  }));
}

}  // namespace
}  // namespace weft
