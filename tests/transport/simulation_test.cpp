#include "transport/sim/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "weft/error.hpp"

namespace weft::sim {
namespace {

using std::chrono::microseconds;

constexpr LinkSpeed kLink{10e-6, 1e9};  // 10 µs, a byte a nanosecond

std::vector<std::byte> filled(std::size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

/// What a rank's error says; empty without one.
std::string message_of(std::exception_ptr const& error, ErrorCode code) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (Error const& known) {
    EXPECT_EQ(known.code(), code) << known.what();
    return known.what();
  }
}

TEST(Simulation, AMessageTakesLatencyAndItsBytes) {
  auto const outcome = simulate(Topology::flat(2, kLink), {}, [](Transport& rank) {
    if (rank.rank() == 0) {
      auto const data = filled(5000, 7);
      rank.send(1, data);
      EXPECT_EQ(now(rank), microseconds(5));  // the buffer is free before the message is there
    } else {
      auto data = filled(5000, 0);
      rank.recv(0, data);
      EXPECT_EQ(now(rank), microseconds(15));
      EXPECT_EQ(data, filled(5000, 7));
    }
  });
  outcome.rethrow();
  EXPECT_EQ(outcome.elapsed, microseconds(15));
  EXPECT_EQ(outcome.messages, 1U);
  EXPECT_EQ(outcome.bytes, 5000U);
}

TEST(Simulation, WhatIsSentMayBeWrittenOnceTheSendIsComplete) {
  simulate(Topology::flat(2, kLink), {}, [](Transport& rank) {
    auto data = filled(100, rank.rank() + 1);
    if (rank.rank() == 0) {
      rank.send(1, data);
      std::fill(data.begin(), data.end(), std::byte{9});
    } else {
      rank.recv(0, data);
      EXPECT_EQ(data, filled(100, 1));
    }
  }).rethrow();
}

TEST(Simulation, WhatIsWrittenTooEarlyArrives) {  // so that algorithms that do it fail their tests
  simulate(Topology::flat(2, kLink), {}, [](Transport& rank) {
    auto data = filled(100, 1);
    if (rank.rank() == 0) {
      auto request = rank.start_send(1, data);
      std::fill(data.begin(), data.end(), std::byte{9});
      rank.wait(request);
    } else {
      rank.recv(0, data);
      EXPECT_EQ(data, filled(100, 9));
    }
  }).rethrow();
}

TEST(Simulation, NobodySeesWhatHasNotCome) {
  Options options;
  options.spoil_buffers = true;
  simulate(Topology::flat(2, kLink), options, [](Transport& rank) {
    auto data = filled(8, 1);
    if (rank.rank() == 0) return rank.send(1, data);
    auto request = rank.start_recv(0, data);
    EXPECT_EQ(data, filled(8, 0xa5));
    rank.wait(request);
    EXPECT_EQ(data, filled(8, 1));
  }).rethrow();
}

TEST(Simulation, MessagesMatchInOrderWhenTheyOvertakeEachOther) {
  Options options;
  options.jitter = microseconds(100);
  options.record = true;
  bool overtook = false;
  for (options.seed = 1; options.seed <= 20; ++options.seed) {
    simulate(Topology::flat(2, kLink), options, [&](Transport& rank) {
      std::array<std::array<std::byte, 4>, 8> data{};
      std::array<Transport::Request, 8> requests{};
      for (std::size_t i = 0; i < data.size(); ++i) {
        if (rank.rank() == 0) data[i].fill(static_cast<std::byte>(i + 1));
        requests[i] = rank.rank() == 0 ? rank.start_send(1, data[i]) : rank.start_recv(0, data[i]);
      }
      Time before{};
      for (std::size_t i = data.size(); i-- > 0;) {  // the last one first
        rank.wait(requests[i]);
        if (rank.rank() == 1) {
          EXPECT_EQ(data[i][3], static_cast<std::byte>(i + 1));
        }
        if (rank.rank() == 1 && i + 1 < data.size()) overtook |= now(rank) > before;
        before = now(rank);
      }
    }).rethrow();
  }
  EXPECT_TRUE(overtook);  // an earlier message came later than a later one
}

TEST(Simulation, LongMessagesWaitForTheirReceiver) {
  Options options;
  options.eager_bytes = 100;
  simulate(Topology::flat(2, kLink), options, [](Transport& rank) {
    auto data = filled(1000, 1);
    if (rank.rank() == 0) {
      rank.send(1, data);
      EXPECT_EQ(now(rank), microseconds(51));
    } else {
      pass(rank, microseconds(50));
      rank.recv(0, data);
      EXPECT_EQ(now(rank), microseconds(61));
    }
  }).rethrow();
}

TEST(Simulation, ReductionsAndComputationTakeTime) {
  Options options;
  options.reduction_s_per_byte = 1e-9;
  options.stragglers = {{1, 3, microseconds(7)}};
  simulate(Topology::flat(2, kLink), options, [](Transport& rank) {
    rank.reduced(1000);
    EXPECT_EQ(now(rank), rank.rank() == 0 ? microseconds(1) : microseconds(7 + 3));
    pass(rank, microseconds(5));
    EXPECT_EQ(now(rank), rank.rank() == 0 ? microseconds(6) : microseconds(15));
  }).rethrow();
}

/// Everybody sends to everybody, in an order of its own.
void talk(Transport& rank) {
  std::vector<Transport::Request> requests;
  std::vector<std::vector<std::byte>> received(static_cast<std::size_t>(rank.size()), filled(300, 0));
  auto const data = filled(300, rank.rank());
  for (int step = 1; step < rank.size(); ++step) {
    auto const from = (rank.rank() - step + rank.size()) % rank.size();
    requests.push_back(rank.start_recv(from, received[static_cast<std::size_t>(from)]));
    requests.push_back(rank.start_send((rank.rank() + step) % rank.size(), data));
  }
  for (auto& request : requests) rank.wait(request);
  for (int r = 0; r < rank.size(); ++r) {
    if (r != rank.rank()) {
      EXPECT_EQ(received[static_cast<std::size_t>(r)], filled(300, r));
    }
  }
}

TEST(Simulation, EqualSeedsGiveEqualRuns) {
  Options options;
  options.jitter = microseconds(30);
  options.shuffle = true;
  options.record = true;
  auto const run = [&](std::uint64_t seed) {
    options.seed = seed;
    auto outcome = simulate(Topology::flat(9, kLink), options, talk);
    outcome.rethrow();
    return outcome;
  };
  auto const first = run(5);
  auto const again = run(5);
  auto const other = run(6);
  EXPECT_FALSE(first.trace.empty());
  EXPECT_EQ(first.trace, again.trace);
  EXPECT_EQ(first.fingerprint, again.fingerprint);
  EXPECT_EQ(first.ended, again.ended);
  EXPECT_NE(first.trace, other.trace);
  EXPECT_NE(first.fingerprint, other.fingerprint);
}

TEST(Simulation, SizesAloneTakeTheSameTime) {
  Options options;
  options.jitter = microseconds(30);
  auto const whole = simulate(Topology::flat(5, kLink), options, talk);
  options.carries_data = false;
  auto const sizes = simulate(Topology::flat(5, kLink), options, [](Transport& rank) {
    ASSERT_NE(rank.phantom(), nullptr);
    std::vector<Transport::Request> requests;
    for (int step = 1; step < rank.size(); ++step) {
      requests.push_back(rank.start_recv((rank.rank() - step + rank.size()) % rank.size(), {rank.phantom(), 300}));
      requests.push_back(rank.start_send((rank.rank() + step) % rank.size(), {rank.phantom(), 300}));
    }
    for (auto& request : requests) rank.wait(request);
  });
  EXPECT_EQ(whole.fingerprint, sizes.fingerprint);
}

TEST(Simulation, ACircleOfWaitsIsReported) {
  auto const outcome = simulate(Topology::flat(3, kLink), {}, [](Transport& rank) {
    auto data = filled(64, 0);
    rank.recv((rank.rank() + 1) % 3, data);
  });
  for (int r = 0; r < 3; ++r) {
    auto const text = message_of(outcome.errors[static_cast<std::size_t>(r)], ErrorCode::timeout);
    for (auto const* wait :
         {"rank 0 waits for message 0 (64 bytes) from rank 1", "rank 1 waits for message 0 (64 bytes) from rank 2",
          "rank 2 waits for message 0 (64 bytes) from rank 0"}) {
      EXPECT_NE(text.find(wait), std::string::npos) << text;
    }
  }
}

TEST(Simulation, BlockingSendsOfLongMessagesToEachOtherAreReported) {
  Options options;
  options.eager_bytes = 10;
  auto const outcome = simulate(Topology::flat(2, kLink), options, [](Transport& rank) {
    auto data = filled(64, 0);
    rank.send(1 - rank.rank(), data);
    rank.recv(1 - rank.rank(), data);
  });
  auto const text = message_of(outcome.errors[0], ErrorCode::timeout);
  EXPECT_NE(text.find("rank 0 waits to be rid of message 0 (64 bytes) for rank 1"), std::string::npos) << text;
}

TEST(Simulation, ARankThatEndsEarlyIsNamed) {
  auto const outcome = simulate(Topology::flat(2, kLink), {}, [](Transport& rank) {
    auto data = filled(64, 0);
    if (rank.rank() == 0) rank.recv(1, data);
  });
  auto const text = message_of(outcome.errors[0], ErrorCode::timeout);
  EXPECT_NE(text.find("from rank 1, which has ended"), std::string::npos) << text;
  EXPECT_FALSE(outcome.errors[1]);
}

TEST(Simulation, UnequalLengthsNameBothRanks) {
  auto const outcome = simulate(Topology::flat(2, kLink), {}, [](Transport& rank) {
    auto data = filled(rank.rank() == 0 ? 64 : 32, 0);
    rank.rank() == 0 ? rank.send(1, data) : rank.recv(0, data);
  });
  EXPECT_EQ(message_of(outcome.errors[1], ErrorCode::mismatch),
            "message 0 from rank 0 has 64 bytes, rank 1 expects 32; both sides must agree");
}

TEST(Simulation, AFailingRankEndsAllOthers) {
  auto const outcome = simulate(Topology::flat(3, kLink), {}, [](Transport& rank) {
    if (rank.rank() == 2) throw std::runtime_error("no more");
    auto data = filled(64, 0);
    rank.recv(2, data);
  });
  for (std::size_t r = 0; r < 2; ++r) {
    auto const text = message_of(outcome.errors[r], ErrorCode::aborted);
    EXPECT_NE(text.find("rank 2 failed: no more"), std::string::npos) << text;
  }
  EXPECT_THROW(outcome.rethrow(), std::runtime_error);
}

TEST(Simulation, ALostRankIsNamedByAllOthers) {
  Options options;
  options.losses = {{1, microseconds(40)}};
  options.detection = microseconds(500);
  auto const outcome = simulate(Topology::flat(4, kLink), options, [](Transport& rank) {
    auto data = filled(64, 0);
    for (int step = 0; step < 100; ++step) {  // around a ring, until one is missing
      std::vector<std::byte> sent = data;
      rank.sendrecv((rank.rank() + 1) % 4, sent, (rank.rank() + 3) % 4, data);
    }
  });
  for (std::size_t r = 0; r < 4; ++r) {
    auto const text = message_of(outcome.errors[r], ErrorCode::peer_lost);
    EXPECT_EQ(text.find("rank 1 was lost") != std::string::npos, r != 1) << text;
    if (r != 1) {
      EXPECT_EQ(outcome.ended[r], microseconds(540));
    }
  }
  EXPECT_FALSE(outcome.errors[1]);
  EXPECT_EQ(outcome.ended[1], microseconds(40));
}

TEST(Simulation, WhatItsClockCannotHoldIsRefused) {
  auto const refused = [](LinkSpeed link, std::function<void(Transport&)> const& body) {
    Options options;
    options.carries_data = false;
    options.reduction_s_per_byte = 1e300;
    auto const outcome = simulate(Topology::flat(2, link), options, body);
    for (auto const& error : outcome.errors) {
      auto const text = message_of(error, ErrorCode::invalid_argument);
      EXPECT_NE(text.find("more than the 100 days"), std::string::npos) << text;
    }
  };
  auto const send = [](Transport& rank) {  // each takes a third of the time there is
    std::span<std::byte> const bytes(rank.phantom(), 1U << 20U);
    for (int i = 0; i < 4; ++i) rank.rank() == 0 ? rank.send(1, bytes) : rank.recv(0, bytes);
  };
  refused({10e-6, 0.35}, send);
  refused({10e-6, 1e-300}, send);
  refused(kLink, [](Transport& rank) {
    for (int i = 0; i < 4; ++i) pass(rank, kLatest / 3);
  });
  refused(kLink, [](Transport& rank) { rank.reduced(1); });
  EXPECT_EQ(from_seconds(1e300), kNever);
  EXPECT_EQ(later(kLatest, kLatest), kNever);
}

TEST(Simulation, WhatWasNotWaitedForIsReported) {
  auto const outcome = simulate(Topology::flat(2, kLink), {}, [](Transport& rank) {
    static std::array<std::byte, 8> data;
    if (rank.rank() == 0) static_cast<void>(rank.start_send(1, data));
    if (rank.rank() == 1) rank.recv(0, data);
  });
  EXPECT_NE(message_of(outcome.errors[0], ErrorCode::invalid_argument).find("1 requests"), std::string::npos);
}

TEST(Simulation, NobodySendsToItselfOrToNobody) {
  for (int const peer : {0, -1, 2}) {
    auto const outcome = simulate(Topology::flat(2, kLink), {}, [&](Transport& rank) {
      if (rank.rank() == 0) rank.send(peer, {});
    });
    EXPECT_FALSE(message_of(outcome.errors[0], ErrorCode::invalid_argument).empty()) << peer;
  }
}

TEST(Simulation, ExceptionsMayBeCaughtWhileOthersThrow) {
  simulate(Topology::flat(8, kLink), {}, [](Transport& rank) {
    try {
      throw std::runtime_error(std::to_string(rank.rank()));
    } catch (std::runtime_error const& error) {
      pass(rank, microseconds(8 - rank.rank()));  // another rank's handlers run meanwhile
      try {
        throw;
      } catch (std::exception const& same) {
        EXPECT_EQ(same.what(), std::to_string(rank.rank()));
      }
      EXPECT_EQ(error.what(), std::to_string(rank.rank()));
    }
  }).rethrow();
}

}  // namespace
}  // namespace weft::sim
