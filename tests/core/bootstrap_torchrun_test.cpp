#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "core/process_watch.hpp"
#include "harness/ranks.hpp"
#include "harness/tally.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::RankExit;

constexpr char const* kVariables[] = {"RANK",        "WORLD_SIZE",          "LOCAL_WORLD_SIZE",          "MASTER_PORT",
                                      "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"};

/// Of this process alone and its ranks, so that what other tests have open is not taken for theirs.
std::string const kPort = std::to_string(20'000 + getpid() % 20'000);

/// What torchrun would set for `rank` of `ranks`. The process id of the test keeps concurrent tests apart.
void set_environment(int rank, int ranks, std::string const& run_id) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", kPort.c_str(), 1);
  setenv("TORCHELASTIC_RUN_ID", run_id.c_str(), 1);
}

std::string unique_id() {
  return "test-" + std::to_string(getpid());
}

Config with_timeout(std::chrono::milliseconds timeout) {
  Config config;
  config.timeout = timeout;
  return config;
}

void expect_contains(std::string const& text, std::string const& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\ndoes not contain\n" << part;
}

/// True when an abstract socket of this user's Weft jobs is left, whichever the job.
bool socket_left(std::string const& part) {
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

void gather_and_check(Bootstrap& bootstrap, std::size_t bytes) {
  std::vector<std::byte> const mine(bytes, static_cast<std::byte>(bootstrap.rank() + 1));
  std::vector<std::byte> const all = bootstrap.all_gather(mine);
  ASSERT_EQ(all.size(), bytes * static_cast<std::size_t>(bootstrap.size()));
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::byte>(i / bytes + 1));
}

TEST(TorchrunBootstrap, GathersInRankOrder) {
  std::string const id = unique_id();
  for (int const ranks : {1, 2, 5, 9}) {
    test::expect_all_succeeded(test::run_forked(ranks, [&](int rank) {
      set_environment(rank, ranks, id);
      if (rank == 0) std::this_thread::sleep_for(30ms);  // the others have to retry
      auto const bootstrap = bootstrap_from_environment(with_timeout(10s));
      EXPECT_EQ(bootstrap->name(), "torchrun");
      EXPECT_EQ(bootstrap->rank(), rank);
      EXPECT_EQ(bootstrap->size(), ranks);
      for (std::size_t const bytes : {1U, 0U, 64U, 300'000U, 7U}) gather_and_check(*bootstrap, bytes);
      return 0;
    }));
  }
  EXPECT_FALSE(socket_left("@weft-" + std::to_string(getuid()) + "-" + kPort + "-"));
}

TEST(TorchrunBootstrap, SeveralInARowDoNotMix) {
  std::string const id = unique_id();
  test::expect_all_succeeded(test::run_forked(4, [&](int rank) {
    set_environment(rank, 4, id);
    std::vector<std::shared_ptr<Bootstrap>> kept;
    for (int i = 0; i < 10; ++i) {
      kept.push_back(torchrun_bootstrap(with_timeout(10s)));
    }
    for (auto const& bootstrap : kept) gather_and_check(*bootstrap, 16);
    return 0;
  }));
}

TEST(TorchrunBootstrap, ADeadRankIsNamedLongBeforeTheTimeLimit) {
  std::string const id = unique_id();
  for (int const victim : {0, 2}) {
    auto const exits = test::run_forked(4, [&](int rank) {
      set_environment(rank, 4, id);
      auto const bootstrap = torchrun_bootstrap({});
      gather_and_check(*bootstrap, 8);
      if (rank == victim) {
        std::this_thread::sleep_for(20ms);
        kill(getpid(), SIGKILL);
      }
      gather_and_check(*bootstrap, 8);
      return 0;
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      RankExit const& exit = exits[static_cast<std::size_t>(rank)];
      EXPECT_LT(exit.elapsed, test::kNoticed);
      expect_contains(exit.output, "peer_lost: rank " + std::to_string(victim) + " died or left");
    }
  }
}

/// Others have seen it by other means, and leave for it, while the rest is within an exchange.
TEST(TorchrunBootstrap, ADeathIsNamedNotWhoLeavesForIt) {
  std::string const id = unique_id();
  constexpr int kVictim = 2;
  for (int const leaver : {0, 1}) {
    test::Tally watching;
    auto const exits = test::run_forked(4, [&](int rank) {
      set_environment(rank, 4, id);
      auto const bootstrap = torchrun_bootstrap({});
      auto const mine = getpid();
      auto const bytes = bootstrap->all_gather(std::as_bytes(std::span(&mine, 1)));
      std::array<pid_t, 4> pids{};
      std::memcpy(pids.data(), bytes.data(), sizeof pids);
      ProcessWatch const victim(pids[kVictim]);
      ProcessWatch const first(pids[static_cast<std::size_t>(leaver)]);
      watching.add();
      watching.await(4);
      if (rank == kVictim) kill(mine, SIGKILL);
      while ((rank == 0 || rank == leaver) && victim.alive()) std::this_thread::sleep_for(1ms);
      if (rank == leaver) return 0;
      while (rank == 0 && first.alive()) std::this_thread::sleep_for(1ms);
      gather_and_check(*bootstrap, 8);
      return 0;
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == kVictim || rank == leaver) continue;
      expect_contains(exits[static_cast<std::size_t>(rank)].output, "peer_lost: rank 2 died or left");
    }
  }
}

TEST(TorchrunBootstrap, LateRanksAreNamed) {
  std::string const id = unique_id();
  test::Tally gave_up;
  test::expect_all_succeeded(test::run_forked(4, [&](int rank) {
    set_environment(rank, 4, id);
    auto const bootstrap = torchrun_bootstrap(with_timeout(test::kImpatience));
    if (rank == 1 || rank == 3) {
      gave_up.await(2);
      return 0;
    }
    try {
      gather_and_check(*bootstrap, 8);
      ADD_FAILURE() << "nobody is missed";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      expect_contains(error.what(), "rank 1, 3 did not join");
    }
    gave_up.add();
    return 0;
  }));
}

TEST(TorchrunBootstrap, RanksThatNeverConnectAreNamed) {
  std::string const id = unique_id();
  auto const exits = test::run_forked(2, [&](int rank) {
    set_environment(rank == 0 ? 0 : 2, 4, id);
    (void)torchrun_bootstrap(with_timeout(test::kImpatience));
    return 0;
  });
  expect_contains(exits[0].output, "timeout: torchrun bootstrap: rank 1, 3 did not connect");
  auto const alone = test::run_forked(1, [&](int) {
    set_environment(1, 2, id);
    (void)torchrun_bootstrap(with_timeout(100ms));
    return 0;
  });
  expect_contains(alone[0].output, "timeout: torchrun bootstrap: rank 0 did not listen for rank 1");
}

TEST(TorchrunBootstrap, AnotherWorldSizeIsNamedByBoth) {
  std::string const id = unique_id();
  auto const exits = test::run_forked(2, [&](int rank) {
    set_environment(rank, 2 + rank, id);
    (void)torchrun_bootstrap(with_timeout(test::kImpatience));
    return 0;
  });
  expect_contains(exits[0].output, "RANK=1 came with WORLD_SIZE=3, rank 0 has 2");
  expect_contains(exits[1].output, "mismatch: torchrun bootstrap: rank 1 has WORLD_SIZE=3, rank 0 has 2");
}

TEST(TorchrunBootstrap, ARankThatAppearsTwiceIsAnError) {
  std::string const id = unique_id();
  auto const exits = test::run_forked(3, [&](int process) {
    set_environment(process == 0 ? 0 : 1, 3, id);
    (void)torchrun_bootstrap(with_timeout(5s));
    return 0;
  });
  expect_contains(exits[0].output, "invalid_argument: torchrun bootstrap: two processes have RANK=1");
}

TEST(TorchrunBootstrap, UnequalSizesAreFoundOnEveryRank) {
  std::string const id = unique_id();
  auto const exits = test::run_forked(3, [&](int rank) {
    set_environment(rank, 3, id);
    auto const bootstrap = torchrun_bootstrap(with_timeout(5s));
    (void)bootstrap->all_gather(std::vector<std::byte>(rank == 2 ? 3U : 4U));
    return 0;
  });
  for (RankExit const& exit : exits) expect_contains(exit.output, "mismatch: start-up exchange: rank 2");
}

/// A change to a right environment, and what the error must say.
struct Wrong {
  char const* variable;
  char const* value;  ///< null: unset
  ErrorCode code;
  char const* said;
};

class WrongVariable : public testing::TestWithParam<Wrong> {
 protected:
  void TearDown() override {
    for (char const* name : kVariables) unsetenv(name);
  }
};

TEST_P(WrongVariable, IsNamed) {
  set_environment(0, 2, unique_id());
  Wrong const& wrong = GetParam();
  wrong.value == nullptr ? unsetenv(wrong.variable) : setenv(wrong.variable, wrong.value, 1);
  try {
    (void)torchrun_bootstrap(with_timeout(100ms));
    FAIL() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), wrong.code);
    expect_contains(error.what(), wrong.said);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variables, WrongVariable,
    testing::Values(Wrong{"RANK", nullptr, ErrorCode::invalid_argument, "RANK is not set"},
                    Wrong{"WORLD_SIZE", "", ErrorCode::invalid_argument, "WORLD_SIZE is not set"},
                    Wrong{"LOCAL_WORLD_SIZE", nullptr, ErrorCode::invalid_argument, "LOCAL_WORLD_SIZE is not set"},
                    Wrong{"MASTER_PORT", nullptr, ErrorCode::invalid_argument, "MASTER_PORT is not set"},
                    Wrong{"RANK", "two", ErrorCode::invalid_argument, "RANK=two: expected a number from 0 to 1"},
                    Wrong{"RANK", "2", ErrorCode::invalid_argument, "RANK=2"},
                    Wrong{"RANK", "-1", ErrorCode::invalid_argument, "RANK=-1"},
                    Wrong{"WORLD_SIZE", "0", ErrorCode::invalid_argument, "WORLD_SIZE=0"},
                    Wrong{"MASTER_PORT", "70000", ErrorCode::invalid_argument, "MASTER_PORT=70000"},
                    Wrong{"LOCAL_WORLD_SIZE", "3", ErrorCode::invalid_argument,
                          "LOCAL_WORLD_SIZE=3 is more than WORLD_SIZE=2"}));

/// As on a host of its own each, at an address of this one that no other test has.
void set_hosts_environment(int rank, int ranks, std::string const& address) {
  set_environment(rank, ranks, "on hosts");
  setenv("LOCAL_WORLD_SIZE", "1", 1);
  setenv("MASTER_ADDR", address.c_str(), 1);
  setenv("MASTER_PORT", "29511", 1);
}

/// 127.x.y.z of this process's number.
std::string own_address() {
  auto const number = static_cast<unsigned>(getpid());
  return "127." + std::to_string(number / 65536 % 200 + 1) + "." + std::to_string(number / 256 % 256) + "." +
         std::to_string(number % 256);
}

TEST(TorchrunBootstrapOnHosts, GathersInRankOrder) {
  auto const address = own_address();
  for (int const ranks : {2, 5}) {
    for (char const* const agent : {"True", "False"}) {
      test::expect_all_succeeded(test::run_forked(ranks, [&](int rank) {
        set_hosts_environment(rank, ranks, address);
        setenv("TORCHELASTIC_USE_AGENT_STORE", agent, 1);
        if (rank == 0) std::this_thread::sleep_for(60ms);  // the others have to retry
        for (int i = 0; i < 3; ++i) {
          auto const bootstrap = bootstrap_from_environment(with_timeout(10s));
          EXPECT_EQ(bootstrap->rank(), rank);
          EXPECT_EQ(bootstrap->size(), ranks);
          for (std::size_t const bytes : {1U, 0U, 300'000U}) gather_and_check(*bootstrap, bytes);
        }
        return 0;
      }));
    }
  }
}

TEST(TorchrunBootstrapOnHosts, AUserMayHaveAnotherNumberOnEachHost) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  auto const address = own_address();
  test::expect_all_succeeded(test::run_forked(2, [&](int rank) {
    set_hosts_environment(rank, 2, address);
    auto const changed = rank == 1 ? setuid(65534) : 0;
    EXPECT_EQ(changed, 0);
    gather_and_check(*torchrun_bootstrap(with_timeout(test::kImpatience)), 8);
    return 0;
  }));
}

/// Whether somebody listens at port 29511 of `address`.
bool listens(std::string const& address) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  EXPECT_EQ(std::sscanf(address.c_str(), "%u.%u.%u.%u", &a, &b, &c, &d), 4);
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, " %02X%02X%02X%02X:7347 00000000:0000 0A", d, c, b, a);
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    if (line.find(wanted) != std::string::npos) return true;
  }
  return false;
}

TEST(TorchrunBootstrapOnHosts, ListensWhereItIsToldAndNoLongerThanNeeded) {
  auto const address = own_address();
  test::expect_all_succeeded(test::run_forked(2, [&](int rank) {
    set_hosts_environment(rank, 2, address);
    if (rank == 1) {
      for (int i = 0; i < 3000 && !listens(address); ++i) std::this_thread::sleep_for(10ms);
      EXPECT_TRUE(listens(address));
      EXPECT_FALSE(listens("0.0.0.0"));
    }
    auto const bootstrap = torchrun_bootstrap({});
    EXPECT_FALSE(listens(address));
    gather_and_check(*bootstrap, 8);
    return 0;
  }));
}

TEST(TorchrunBootstrapOnHosts, ADeadRankIsNamed) {
  auto const address = own_address();
  auto const exits = test::run_forked(3, [&](int rank) {
    set_hosts_environment(rank, 3, address);
    auto const bootstrap = torchrun_bootstrap(with_timeout(20s));
    if (rank == 2) kill(getpid(), SIGKILL);
    gather_and_check(*bootstrap, 8);
    return 0;
  });
  for (int const rank : {0, 1}) {
    expect_contains(exits[static_cast<std::size_t>(rank)].output, "peer_lost: rank 2 died or left");
  }
}

TEST(TorchrunBootstrapOnHosts, StrangersAreNotLetIn) {
  auto const address = own_address();
  auto const exits = test::run_forked(3, [&](int rank) {
    set_hosts_environment(rank, 3, address);
    if (rank == 2) setenv("TORCHELASTIC_RUN_ID", "another job", 1);
    (void)torchrun_bootstrap(with_timeout(test::kImpatience));
    return 0;
  });
  expect_contains(exits[0].output, "rank 2 did not connect to rank 0 within 4000 ms");
  EXPECT_NE(exits[2].code, 0);
}

TEST(TorchrunBootstrapOnHosts, AnAddressThatIsNotRankZerosIsNamed) {
  for (auto const& [wrong, said] : {std::pair("192.0.2.7", "none of the addresses of this host"),
                                    std::pair("no.such.host.invalid", "no address that rank 0's host knows")}) {
    auto const* const address = wrong;  // clang 14 captures no structured bindings
    auto const exits = test::run_forked(1, [&](int) {
      set_hosts_environment(0, 2, address);
      (void)torchrun_bootstrap(with_timeout(5s));
      return 0;
    });
    expect_contains(exits[0].output, "invalid_argument");
    expect_contains(exits[0].output, said);
  }
}

TEST(TorchrunBootstrapOnHosts, ANameThatAnotherHostDoesNotKnowIsNamed) {
  auto const exits = test::run_forked(1, [&](int) {
    set_hosts_environment(1, 2, "no.such.host.invalid");
    (void)torchrun_bootstrap(with_timeout(100ms));
    return 0;
  });
  expect_contains(exits[0].output, "invalid_argument");
  expect_contains(exits[0].output, "MASTER_ADDR=no.such.host.invalid is no address that this host knows");
}

TEST(TorchrunBootstrapOnHosts, NobodyThereIsToldWhereItWasTried) {
  auto const exits = test::run_forked(1, [&](int) {
    set_hosts_environment(1, 2, own_address());
    (void)torchrun_bootstrap(with_timeout(100ms));
    return 0;
  });
  expect_contains(exits[0].output, "rank 0 did not listen for rank 1 within 100 ms; can this host reach 127.");
}

}  // namespace
}  // namespace weft
