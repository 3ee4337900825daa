#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>

#include "collectives/reference.hpp"
#include "harness/ranks.hpp"
#include "harness/sanitizers.hpp"

namespace weft::test {
namespace {

constexpr std::array<std::size_t, 8> kAllCounts{0, 1, 6, 7, 1009, 30011, 90001, 400009};
constexpr auto kCounts = std::span(kAllCounts).first(kThreadSanitizer ? 7 : 8);

Buffer make(Communicator& world, bool symmetric, std::size_t count, DataType dtype) {
  return symmetric ? world.allocate(count, dtype) : Buffer::host(count, dtype);
}

struct Movement : testing::TestWithParam<int> {};

TEST_P(Movement, ReduceScatter) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const rank = static_cast<std::size_t>(world.rank());
    for (auto const count : kCounts) {
      for (auto const& [symmetric, in_place] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
        std::vector<std::vector<double>> all;
        for (int peer = 0; peer < world.size(); ++peer) {
          all.push_back(make_values(count * ranks, DataType::f32, ReduceOp::sum, peer, count + 3));
        }
        auto send = make(world, symmetric, count * ranks, DataType::f32);
        auto recv = make(world, symmetric, count, DataType::f32);
        store_values(all[rank], send.view());
        auto const result = in_place ? send.view().slice(rank * count, count) : recv.view();
        world.reduce_scatter(send.view(), result, ReduceOp::sum);
        auto const reduced = reduce_values(all, DataType::f32, ReduceOp::sum);
        std::vector<double> const wanted(reduced.begin() + static_cast<std::ptrdiff_t>(rank * count),
                                         reduced.begin() + static_cast<std::ptrdiff_t>((rank + 1) * count));
        ASSERT_EQ(wanted, load_values(result))
            << count << (symmetric ? " symmetric" : "") << (in_place ? " in place" : "");
        if (!in_place) {
          ASSERT_EQ(all[rank], load_values(send.view())) << "the send buffer was written";
        }
      }
    }
  });
}

TEST_P(Movement, AllGather) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const rank = static_cast<std::size_t>(world.rank());
    for (auto const count : kCounts) {
      for (auto const& [symmetric, in_place] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
        std::vector<double> wanted;
        for (int peer = 0; peer < world.size(); ++peer) {
          auto const part = make_values(count, DataType::i64, ReduceOp::sum, peer, count);
          wanted.insert(wanted.end(), part.begin(), part.end());
        }
        auto send = make(world, symmetric, count, DataType::i64);
        auto recv = make(world, symmetric, count * ranks, DataType::i64);
        auto const source = in_place ? recv.view().slice(rank * count, count) : send.view();
        store_values(make_values(count, DataType::i64, ReduceOp::sum, world.rank(), count), source);
        world.all_gather(source, recv.view());
        ASSERT_EQ(wanted, load_values(recv.view()))
            << count << (symmetric ? " symmetric" : "") << (in_place ? " in place" : "");
      }
    }
  });
}

TEST_P(Movement, BroadcastFromEveryRoot) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (auto const count : kCounts) {
        for (bool const symmetric : {false, true}) {
          auto buffer = make(world, symmetric, count, DataType::f64);
          store_values(make_values(count, DataType::f64, ReduceOp::sum, world.rank(), count), buffer.view());
          world.broadcast(buffer.view(), root);
          ASSERT_EQ(make_values(count, DataType::f64, ReduceOp::sum, root, count), load_values(buffer.view())) << count;
        }
      }
    }
  });
}

/// Where one rank only gives, it fills one, two or four slots of a ring and runs ahead of who reads them. Contents of
/// all sizes, from changing roots, and nothing in between that the ranks wait for.
TEST_P(Movement, RootedCallsOfAllSizesFollowOneAnother) {
  static constexpr std::array<std::size_t, 14> kSizes{0,    1,    15,   61,   62,   63,    2047,
                                                      2048, 2049, 4095, 4097, 9280, 32768, 32771};
  static constexpr std::uint64_t kSeed = 20261127;
  run_thread_ranks(GetParam(), [](Communicator& world) {
    auto const ranks = static_cast<std::size_t>(world.size());
    auto const rank = static_cast<std::size_t>(world.rank());
    std::mt19937_64 random(kSeed);
    int root = 0;
    std::size_t kind = 0;
    auto const below = [&](std::size_t most) { return random() % most; };
    for (int call = 0; call < (kThreadSanitizer ? 400 : 2000); ++call) {
      auto const count = kSizes[below(kSizes.size())];
      if (call % 50 == 0) root = static_cast<int>(below(ranks));
      if (call % 50 == 0) kind = below(4);
      auto const is_root = world.rank() == root;
      // who is late makes the others run ahead as far as they may
      if (call % 25 == 0 && below(ranks) == rank) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      SCOPED_TRACE(fmt::format("seed {}, call {}, kind {}, {} elements, root {}", kSeed, call, kind, count, root));
      auto const values = [&](int of, std::size_t elements) {
        return make_values(elements, DataType::f32, ReduceOp::sum, of, static_cast<std::uint64_t>(call));
      };
      auto part = Buffer::host(count, DataType::f32);
      auto all = Buffer::host(count * ranks, DataType::f32);
      auto result = Buffer::host(count, DataType::f32);
      if (kind == 0) {
        store_values(values(world.rank(), count), part.view());
        world.broadcast(part.view(), root);
        ASSERT_EQ(values(root, count), load_values(part.view()));
      } else if (kind == 1) {
        store_values(values(world.rank(), count), part.view());
        world.gather(part.view(), all.view(), root);
        for (std::size_t peer = 0; is_root && peer < ranks; ++peer) {
          ASSERT_EQ(values(static_cast<int>(peer), count), load_values(all.view().slice(peer * count, count)));
        }
      } else if (kind == 2) {
        if (is_root) store_values(values(root, count * ranks), all.view());
        world.scatter(all.view(), part.view(), root);
        auto const sent = values(root, count * ranks);
        auto const first = sent.begin() + static_cast<std::ptrdiff_t>(rank * count);
        ASSERT_EQ(std::vector<double>(first, first + static_cast<std::ptrdiff_t>(count)), load_values(part.view()));
      } else {
        store_values(values(world.rank(), count), part.view());
        world.reduce(part.view(), result.view(), ReduceOp::sum, root);
        std::vector<std::vector<double>> each;
        for (int peer = 0; is_root && peer < world.size(); ++peer) each.push_back(values(peer, count));
        if (is_root) {
          ASSERT_EQ(reduce_values(each, DataType::f32, ReduceOp::sum), load_values(result.view()));
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Movement, testing::Values(1, 2, 3, 5));

/// A rank that comes late, when the others have given as much as they can, or for this long.
class Latecomer {
 public:
  void wait() const {
    for (int ms = 0; ms < 300 && !given_; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void others_have_given() { given_ = true; }

 private:
  std::atomic<bool> given_{false};
};

/// What takes two slots of a giver's ring is still there when a late reader comes, though the giver has been once round
/// its places or its slots since, and only the second of those slots is its own again.
TEST(Broadcast, LateReadersFindLongContentsWhole) {
  for (std::uint64_t const round : {64, 128}) {
    Latecomer latecomer;
    run_thread_ranks(3,
                     [&](Communicator& world) {
                       auto const broadcast = [&](int root, std::size_t count, std::uint64_t seed) {
                         auto const sent = make_values(count, DataType::i32, ReduceOp::sum, root, seed);
                         auto part = Buffer::host(count, DataType::i32);
                         if (world.rank() == root) store_values(sent, part.view());
                         world.broadcast(part.view(), root);
                         ASSERT_EQ(sent, load_values(part.view())) << "of rank " << root << ", seed " << seed;
                       };
                       if (world.rank() == 0) latecomer.wait();
                       broadcast(1, 5120, 0);  // slots 0 and 1, then 2
                       for (std::uint64_t seed = 1; seed < round - 1; ++seed) broadcast(2, 256, seed);  // 3, ..., 0
                       broadcast(1, 256, round);                                                        // 1
                       if (world.rank() == 1) latecomer.others_have_given();
                     },
                     {.small_staging = true});
  }
}

/// What lies in the few places for a root is still there when the root comes late, also where what is given next is for
/// all, and may lie in more places; and the other way round.
TEST(Gather, ALateRootFindsWhatOthersGaveBefore) {
  constexpr std::uint64_t kCalls = 300;  // twice round the slots, and more
  for (bool const gathers_first : {true, false}) {
    Latecomer latecomer;
    run_thread_ranks(5, [&](Communicator& world) {
      constexpr std::size_t kCount = 256;
      auto const values = [](int rank, std::uint64_t call) {
        return make_values(kCount, DataType::i32, ReduceOp::sum, rank, call);
      };
      auto part = Buffer::host(kCount, DataType::i32);
      auto all = Buffer::host(world.rank() == 0 ? kCount * 5 : 0, DataType::i32);
      if (world.rank() == 0) latecomer.wait();
      for (std::uint64_t call = 0; call < kCalls; ++call) {
        if ((call % 128 < 64) == gathers_first) {
          store_values(values(world.rank(), call), part.view());
          world.gather(part.view(), all.view(), 0);
          for (int peer = 0; world.rank() == 0 && peer < 5; ++peer) {
            auto const found = load_values(all.view());
            auto const first = found.begin() + static_cast<std::ptrdiff_t>(kCount) * peer;
            ASSERT_EQ(values(peer, call), std::vector<double>(first, first + static_cast<std::ptrdiff_t>(kCount)))
                << "of rank " << peer << " in call " << call;
          }
        } else {
          if (world.rank() == 1) store_values(values(1, call), part.view());
          world.broadcast(part.view(), 1);
          ASSERT_EQ(values(1, call), load_values(part.view())) << "in call " << call;
        }
      }
      latecomer.others_have_given();
    });
  }
}

TEST(Barrier, NobodyLeavesBeforeAllHaveEntered) {
  std::atomic<int> entered{0};
  run_thread_ranks(4, [&](Communicator& world) {
    for (int round = 1; round <= 200; ++round) {
      ++entered;
      world.barrier();
      EXPECT_GE(entered.load(), 4 * round);
      world.barrier();
    }
  });
}

/// More than 4 GiB of addresses on 64 MiB of memory: the same window again and again, then a tail of its own.
class WideBuffer {
 public:
  static constexpr std::size_t kWindow = std::size_t{64} << 20U;
  static constexpr std::size_t kWindows = 64;
  static constexpr std::size_t kTail = 8192;
  static constexpr std::size_t kBytes = kWindow * kWindows + kTail;

  WideBuffer() {
    int const fd = ::memfd_create("window", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, kWindow) != 0) throw std::runtime_error("no window");
    data_ =
        static_cast<std::uint8_t*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < kWindows; ++i) {
      ::mmap(data_ + i * kWindow, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    }
    ::close(fd);
  }
  WideBuffer(WideBuffer const&) = delete;
  WideBuffer& operator=(WideBuffer const&) = delete;
  ~WideBuffer() { ::munmap(data_, kBytes); }
  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::uint8_t* tail() const { return data_ + kWindow * kWindows; }

 private:
  std::uint8_t* data_;
};

TEST(Broadcast, MoreThanFourGibibytes) {
  if (kThreadSanitizer) GTEST_SKIP() << "a copy of 4 GiB takes a minute here";
  // A count or offset cut to 32 bits would leave the tail or the windows untouched.
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    WideBuffer buffer;
    if (world.rank() == 0) {
      std::memset(buffer.data(), 5, WideBuffer::kWindow);
      std::memset(buffer.tail(), 7, WideBuffer::kTail);
    }
    world.broadcast({buffer.data(), WideBuffer::kBytes, DataType::u8}, 0);
    auto const all = [](std::uint8_t const* begin, std::size_t count, int value) {
      return std::all_of(begin, begin + count, [&](std::uint8_t byte) { return byte == value; });
    };
    return all(buffer.data(), WideBuffer::kWindow, 5) && all(buffer.tail(), WideBuffer::kTail, 7) ? 0 : 1;
  });
  expect_all_succeeded(exits);
}

}  // namespace
}  // namespace weft::test
