// What is given to others without waiting for them, by one real rank; the other is what it would write.
#include "collectives/shm/feeds.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "harness/sanitizers.hpp"

namespace weft::shm {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<Mapping> zeroed(std::size_t bytes) {
  return create_segment(0, 1, bytes, bytes, [](std::span<std::byte const> mine) {
    return std::vector<std::byte>(mine.begin(), mine.end());
  });
}

struct FeedsTest : testing::Test {
  static constexpr std::size_t kPlaces = Feeds::kSlots;

  FeedsTest() {
    reinterpret_cast<ControlBlock*>(control->data())->ranks[1].pid = ::getpid();
    call.contract.operation = Operation::broadcast;
    call.sequence = 1;
    call.timeout = 500ms;
    channel.begin(call);
  }
  /// Gives all readers as much as takes the most slots.
  void give() {
    feeds.give(Feeds::kEverybody, Feeds::kMostBytes, Feeds::Way::at_once, 1,
               [](std::byte*, ByteRange, kernels::Store) {});
    feeds.pass();
  }
  /// The reader has passed what this rank has.
  void keep_up() const {
    std::memcpy(memory->data() + Feeds::bytes_per_rank(kPlaces), memory->data(), sizeof(std::uint64_t));
  }

  std::shared_ptr<Mapping> control = zeroed(sizeof(ControlBlock));
  std::shared_ptr<Mapping> memory = zeroed(2 * Feeds::bytes_per_rank(kPlaces));
  Call call;
  Channel channel{control, 0, 2, {}};
  Feeds feeds{memory, channel, kPlaces, kPlaces};
};

// Others' contents, and no more is told of how far readers are than 32 bits.
TEST_F(FeedsTest, WhoGivesAgainAfterBillionsOfContentsWaitsForNobody) {
  if (test::kSanitized) GTEST_SKIP() << "takes too long in instrumented code";
  constexpr std::uint64_t kFar = (std::uint64_t{1} << 31U) + Feeds::kSlots;
  give();
  for (auto position = Feeds::kMostSlots; position < kFar; position += Feeds::kMostSlots) feeds.pass();
  keep_up();
  give();
}

TEST_F(FeedsTest, WhoGivesMoreThanSlotsHoldWaitsForReaders) {
  for (std::size_t slots = 0; slots < Feeds::kSlots; slots += Feeds::kMostSlots) give();
  EXPECT_THROW(give(), Error);
}

}  // namespace
}  // namespace weft::shm
