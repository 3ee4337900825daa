// What ranks tell one another of a call, and what users are told where it differs.
#include "collectives/call.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace weft::test {
namespace {

bool same_words(PackedContract const& a, PackedContract const& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

Contract random_contract(std::mt19937_64& engine) {
  auto const below = [&](std::uint64_t limit) { return engine() % limit; };
  Contract contract{.count = below(std::uint64_t{1} << 48U),
                    .root = static_cast<std::uint32_t>(engine()),
                    .operation = static_cast<Operation>(below(20)),
                    .dtype = static_cast<DataType>(below(8)),
                    .reduce = static_cast<ReduceOp>(below(5)),
                    .variant = static_cast<std::uint8_t>(engine())};
  if (below(2) == 0) return contract;
  contract.group = {.elements = below(std::uint64_t{1} << 40U),
                    .sizes = static_cast<std::uint32_t>(engine()),
                    .calls = static_cast<std::uint16_t>(1 + below(Contract::Group::kMostCalls))};
  contract.count = contract.group.elements;
  contract.root &= 0xffffU;
  contract.variant = 0;
  return contract;
}

TEST(Contract, TwoWordsHoldAllOfIt) {
  constexpr std::uint64_t kSeed = 20261122;
  std::mt19937_64 engine(kSeed);
  for (int i = 0; i < 10'000; ++i) {
    auto const contract = random_contract(engine);
    ASSERT_EQ(PackedContract(contract).unpack(), contract) << "seed " << kSeed << ", case " << i;
    auto other = contract;
    if (contract.group.calls != 0) {
      other.group.sizes ^= 1U << engine() % 32;
    } else {
      other.count ^= std::uint64_t{1} << engine() % 48;
    }
    ASSERT_FALSE(same_words(PackedContract(contract), PackedContract(other))) << "seed " << kSeed << ", case " << i;
  }
}

TEST(Contract, GapsOfAFlatCopyAreNotTold) {
  Contract contract{.count = 20, .operation = Operation::all_reduce, .dtype = DataType::f32};
  contract.group = {.elements = 20, .sizes = 0xabcdef01, .calls = 2};
  auto padded = contract;
  padded.count = 32;
  EXPECT_TRUE(same_words(PackedContract(contract), PackedContract(padded)));
  EXPECT_EQ(describe(Call{.contract = padded, .sequence = 4}),
            "group of 2 all_reduce calls (20 × f32 in all, sum), call 4");
}

TEST(Contract, TagsAreShownWhereTheyAreTold) {
  Contract contract{.count = 20, .root = 7, .operation = Operation::all_reduce, .dtype = DataType::f32};
  EXPECT_EQ(describe(contract), "all_reduce(20 × f32, sum, tag 7)");
  contract.operation = Operation::all_gather;
  EXPECT_EQ(describe(contract), "all_gather(20 × f32, tag 7)");
  contract.root = 0;
  EXPECT_EQ(describe(contract), "all_gather(20 × f32)");
  EXPECT_EQ(describe(Contract{.root = 7}), "barrier(tag 7)");
  contract = {.count = 20, .root = 7, .operation = Operation::broadcast, .dtype = DataType::f32};
  EXPECT_EQ(describe(contract), "broadcast(20 × f32, root 7)");
}

TEST(Contract, MismatchesSayWhatToLookFor) {
  Contract single{.count = 20, .operation = Operation::all_reduce, .dtype = DataType::f32};
  auto group = single;
  group.group = {.elements = 20, .sizes = 0x12, .calls = 2};
  auto cut = group;
  cut.group.sizes = 0x34;
  EXPECT_EQ(
      describe_mismatch(7, 0, single, 2, group),
      "call 7 differs between ranks: rank 0 made all_reduce(20 × f32, sum), rank 2 made group of 2 all_reduce calls "
      "(20 × f32 in all, sum); make the calls equal");
  EXPECT_EQ(
      describe_mismatch(7, 0, cut, 2, group),
      "call 7 differs between ranks: rank 0 made group of 2 all_reduce calls (20 × f32 in all, sum, sizes 00000034), "
      "rank 2 made group of 2 all_reduce calls (20 × f32 in all, sum, sizes 00000012) (as much in all, but the "
      "sizes of the group's calls or their order differ); make the calls equal");
}

}  // namespace
}  // namespace weft::test
