// One rank makes another call than the others: all are told of both, by the same number. They go on, unless some had
// returned before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/bad_calls_functions.hpp"
#include "harness/ranks.hpp"

namespace weft::test {
namespace {

/// Which rank differs from the others.
constexpr int kOdd = 1;

/// Whether ranks that only give return before the others have come.
bool runs_ahead(Function const& function) {
  for (auto const* name : {"broadcast", "gather", "scatter", "reduce"}) {
    if (std::string(name) == function.name) return true;
  }
  return false;
}

/// Calls that differ, checked and counted one by one.
class Differences {
 public:
  explicit Differences(Communicator& world) : world_(world), lasting_(world.duplicate({})), good_(world.rank()) {}

  [[nodiscard]] Arguments good(Function const& function) { return good_.of(function); }
  [[nodiscard]] bool odd() const noexcept { return world_.rank() == kOdd; }

  /// Of the usual and the odd call, makes this rank's; every message has to name both.
  void expect(Function const& usual, Arguments const& usually, Function const& other, Arguments const& otherwise) {
    SCOPED_TRACE(fmt::format("rank {} makes {}, the others {}", kOdd, other.name, usual.name));
    ++made_;
    auto const make = [&](Communicator& on) { (odd() ? other : usual).call(on, odd() ? otherwise : usually).wait(); };
    if (runs_ahead(usual) || runs_ahead(other)) return expect_soon(make, usual, other);
    ++calls_;
    auto const what = error_of([&] { make(lasting_); });
    expect_words(what, {fmt::format("call {} ", calls_), fmt::format("rank {} made ", world_.rank()),
                        odd() ? std::string("rank ") : fmt::format("rank {} made ", kOdd),
                        fmt::format("{}(", usual.name), fmt::format("{}(", other.name)});
    expect_usable();
  }

  [[nodiscard]] int made() const noexcept { return made_; }

 private:
  /// What Error{mismatch} `body` throws; empty: none.
  template <typename Body>
  static std::string error_of(Body&& body) {
    try {
      body();
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::mismatch, error.code()) << error.what();
      return error.what();
    }
    return {};
  }

  static void expect_words(std::string const& what, std::vector<std::string> const& words) {
    EXPECT_FALSE(what.empty()) << "nothing was thrown";
    for (auto const& word : words) EXPECT_NE(std::string::npos, what.find(word)) << what << "\ndoes not say\n" << word;
  }

  /// Who only gives may find out at the next call; all do by then, and the communicator has failed.
  template <typename Make>
  void expect_soon(Make const& make, Function const& usual, Function const& other) {
    auto once = world_.duplicate({});
    auto what = error_of([&] { make(once); });
    if (what.empty()) what = error_of([&] { once.barrier(); });
    expect_words(what, {"call 1 ", fmt::format("rank {} made ", kOdd), fmt::format("{}(", usual.name),
                        fmt::format("{}(", other.name)});
    EXPECT_FALSE(error_of([&] { once.barrier(); }).empty());
  }

  /// The communicator goes on.
  void expect_usable() {
    float const one = 1;
    float sum = 0;
    lasting_.all_reduce(std::span(&one, 1), std::span(&sum, 1), ReduceOp::sum);
    ++calls_;
    ASSERT_EQ(static_cast<float>(world_.size()), sum);
  }

  Communicator& world_;
  Communicator lasting_;
  GoodArguments good_;
  int made_ = 0;
  std::uint64_t calls_ = 0;
};

std::vector<Function> collectives() {
  std::vector<Function> all;
  for (auto const& function : all_functions()) {
    if (!function.is_message) all.push_back(function);
  }
  return all;
}

TEST(DifferentCalls, AnotherFunction) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) {
    Differences differences(world);
    for (auto const& usual : collectives()) {
      for (auto const& other : collectives()) {
        if (std::string(usual.name) == other.name) continue;
        differences.expect(usual, differences.good(usual), other, differences.good(other));
      }
    }
    EXPECT_EQ(16 * 15, differences.made());
  });
}

TEST(DifferentCalls, OfAFewBytesLeaveAloneWhereTheyWouldReceive) {
  run_thread_ranks(2, [](Communicator& world) {
    auto const expect_untouched = [&](auto const& call, std::size_t times) {
      std::vector<std::uint8_t> const mine(4 + 2 * static_cast<std::size_t>(world.rank()), 1);
      std::vector<std::uint8_t> got(times * mine.size(), 7);
      auto const before = got;
      EXPECT_THROW(call(std::span(mine), std::span(got)), Error);
      EXPECT_EQ(before, got);
    };
    expect_untouched([&](auto mine, auto got) { world.all_gather(mine, got); }, 2);
    expect_untouched([&](auto mine, auto got) { world.all_to_all(mine, got); }, 1);
    expect_untouched([&](auto mine, auto got) { world.all_reduce(mine, got, ReduceOp::sum); }, 1);
  });
}

TEST(DifferentCalls, OtherArguments) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) {
    Differences differences(world);
    for (auto const& function : collectives()) {
      auto const good = differences.good(function);
      auto const expect_other = [&](auto&& change) {
        auto other = good;
        change(other);
        differences.expect(function, good, function, other);
      };
      if (function.recvs == 0) continue;
      expect_other([](Arguments& a) { a.send.dtype = a.recv.dtype = DataType::u32; });
      if (function.rooted) expect_other([](Arguments& a) { a.root = 2; });
      if (function.reduces) {
        expect_other([](Arguments& a) { a.how = ReduceOp::max; });
        expect_other([](Arguments& a) { a.how = Reduction::premul_sum(1); });
        expect_other([](Arguments& a) { a.how = Reduction::user([](void*, void const*, std::size_t, void*) {}); });
      }
      if (function.has_parts()) continue;  // all ranks agree on their sum, or ranks need not know them
      expect_other([](Arguments& a) { a.send.count /= 2, a.recv.count /= 2; });
      expect_other([](Arguments& a) { a.send.count = a.recv.count = 0; });
    }
    EXPECT_EQ(59, differences.made());
  });
}

TEST(DifferentCalls, OtherPartsAndFunctions) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) {
    Differences differences(world);
    for (auto const& function : collectives()) {
      auto const name = std::string(function.name);
      auto good = differences.good(function);
      auto other = good;
      if (name == "all_gather_v" || name == "reduce_scatter_v") {
        other.counts = {5, 6, 7};  // rank 1's own is the same
        differences.expect(function, good, function, other);
      }
      if (!function.reduces) continue;
      other = good;
      auto const nothing = [](void*, void const*, std::size_t, void*) {};
      good.how = Reduction::user(nothing, nullptr, 4, "first");  // told apart by fingerprints
      other.how = Reduction::user(nothing, nullptr, 4, "second");
      differences.expect(function, good, function, other);
      other.how = Reduction::user(nothing, nullptr, 8, "first");
      differences.expect(function, good, function, other);
    }
  });
}

TEST(DifferentCalls, UserFunctionsAreNamed) {
  run_thread_ranks(2, [](Communicator& world) {
    float value = 1;
    BufferView const buffer{&value, 1, DataType::f32};
    auto const nothing = [](void*, void const*, std::size_t, void*) {};
    auto const how = world.rank() == 0 ? Reduction::user(nothing, nullptr, 0, "argmax")
                                       : Reduction::user(nothing, nullptr, 4, "Welford");
    try {
      world.all_reduce(buffer, buffer, how);
      ADD_FAILURE() << "nothing was thrown";
    } catch (Error const& error) {
      std::string const what = error.what();
      for (auto const* word : {": argmax)", ": Welford of 4-byte elements)"})
        EXPECT_NE(std::string::npos, what.find(word)) << what;
    }
  });
}

TEST(DifferentCalls, AnotherOrder) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) {
    Differences differences(world);
    auto const all = collectives();
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      auto const& first = all[i];
      auto const& second = all[i + 1];
      differences.expect(first, differences.good(first), second, differences.good(second));
      differences.expect(second, differences.good(second), first, differences.good(first));
    }
  });
}

/// What only the root knows, or only pairs of ranks: all are told who contradicts whom.
TEST(DifferentCalls, PartsThatOthersExpectOtherwise) {
  run_thread_ranks(kBadCallRanks, [](Communicator& world) {
    GoodArguments memory(world.rank());
    for (auto const& function : collectives()) {
      auto const name = std::string(function.name);
      if (name != "gather_v" && name != "scatter_v" && name != "all_to_all_v") continue;
      SCOPED_TRACE(name);
      auto arguments = memory.of(function);
      if (world.rank() == 0) arguments.counts = {6, 5, 6};  // of rank 1, which thinks of 6
      try {
        function.call(world, arguments).wait();
        ADD_FAILURE() << "nothing was thrown";
      } catch (Error const& error) {
        std::string const what = error.what();
        EXPECT_EQ(ErrorCode::mismatch, error.code()) << what;
        for (auto const* word : {"rank 0", "rank 1", name.c_str(), "call "})
          EXPECT_NE(std::string::npos, what.find(word)) << what << "\ndoes not say\n" << word;
      }
      EXPECT_NO_THROW(world.barrier());
    }
  });
}

TEST(DifferentCalls, MessagesOfAnotherSizeOrType) {
  for (bool const type : {false, true}) {
    run_thread_ranks(2, [type](Communicator& world) {
      std::vector<float> data(100'000);
      auto const expect_mismatch = [&](auto const& call, std::vector<std::string> const& words) {
        try {
          call();
          ADD_FAILURE() << "nothing was thrown";
        } catch (Error const& error) {
          std::string const what = error.what();
          EXPECT_EQ(ErrorCode::mismatch, error.code()) << what;
          for (auto const& word : words) EXPECT_NE(std::string::npos, what.find(word)) << what << "\n" << word;
        }
      };
      if (world.rank() == 0) {
        expect_mismatch([&] { world.send(std::span<float const>(data), 1); }, {"rank 0", "rank 1", "call 1"});
      } else {
        ConstBufferView const other(data.data(), 100'000, DataType::u32);
        BufferView const shorter = std::span(data).first(99'999);
        BufferView const expected = type ? BufferView(data.data(), other.count, other.dtype) : shorter;
        expect_mismatch([&] { world.recv(expected, 0); },
                        {"rank 0", "rank 1", "100000 × f32", type ? "100000 × u32" : "99999 × f32", "message 1",
                         "point-to-point call 1"});
      }
      EXPECT_NO_THROW(world.barrier());
    });
  }
}

/// By its length a root's content lies in the slot's first line, is given at once, in steps, or in several slots, from
/// another slot on: who waits elsewhere, for what never comes, finds out all the same.
TEST(DifferentCalls, BroadcastsThatTakeOtherSlots) {
  std::vector<std::size_t> const counts{8, 60, 400, 1200, 3000, 8000, std::size_t{1} << 16};
  run_thread_ranks(2, [&](Communicator& world) {
    auto const buffer = Buffer::host(counts.back(), DataType::f32);
    for (auto const usual : counts) {
      for (auto const odd : counts) {
        if (usual == odd) continue;
        auto once = world.duplicate({});
        once.broadcast(buffer.view().slice(0, 1), 0);  // at an odd slot from here
        std::string what;
        try {
          once.broadcast(buffer.view().slice(0, world.rank() == kOdd ? odd : usual), 0);
          once.barrier();
        } catch (Error const& error) {
          EXPECT_EQ(ErrorCode::mismatch, error.code()) << error.what();
          what = error.what();
        }
        for (auto const each : {usual, odd}) {
          auto const made = fmt::format("broadcast({} × f32, root 0)", each);
          EXPECT_NE(what.find(made), std::string::npos) << what << "\ndoes not say\n" << made;
        }
      }
    }
  });
}

/// Ranks that staged different amounts are at different places of their rings: all begin anew.
TEST(DifferentCalls, AmountsThatAreStaged) {
  std::vector<std::size_t> const counts{100, 3000, 7000};
  constexpr int kRanks = 4;
  run_thread_ranks(kRanks, [&](Communicator& world) {
    auto const send = Buffer::host(counts.back(), DataType::f32);
    auto const recv = Buffer::host(kRanks * counts.back(), DataType::f32);
    auto const gather = [&](std::size_t count) {
      world.all_gather(send.view().slice(0, count), recv.view().slice(0, kRanks * count));
    };
    float round = 0;
    for (auto const usual : counts) {
      for (auto const odd : counts) {
        if (usual == odd) continue;
        EXPECT_THROW(gather(world.rank() == kOdd ? odd : usual), Error);
        for (auto const count : counts) {
          round += kRanks;
          std::ranges::fill(send.as<float>(), round + static_cast<float>(world.rank()));
          gather(count);
          for (std::size_t i = 0; i < kRanks * count; ++i) {
            auto const rank = i / count;
            ASSERT_EQ(round + static_cast<float>(rank), recv.as<float>()[i])
                << count << " after " << usual << ", " << odd;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace weft::test
