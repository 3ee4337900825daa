// Functions of the caller's: in rank order, on whole elements, over any destination.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "kernels/cpu/reduce.hpp"

namespace weft::test {
namespace {

/// x → factor·x + offset (mod 2^32): composition is associative and does not commute. 12 bytes, which fit no vector.
struct Map {
  std::uint32_t factor = 1;
  std::uint32_t offset = 0;
  std::uint32_t applied = 1;

  friend bool operator==(Map const&, Map const&) = default;
};

Map compose(Map const& first, Map const& then) {
  return {then.factor * first.factor, then.factor * first.offset + then.offset, first.applied + then.applied};
}

void compose_all(void* accumulator, void const* next, std::size_t count, void* context) {
  auto* const mine = static_cast<Map*>(accumulator);
  auto const* const theirs = static_cast<Map const*>(next);
  for (std::size_t i = 0; i < count; ++i) mine[i] = compose(mine[i], theirs[i]);
  *static_cast<std::size_t*>(context) += count;
}

TEST(UserReduction, CombinesInOrderAnyNumberOfElements) {
  std::mt19937_64 random(7);
  for (std::size_t const sources : {1, 2, 3, 7}) {
    for (std::size_t const count : {0, 1, 5, 341, 342, 5000}) {
      std::vector<std::vector<Map>> all(sources, std::vector<Map>(count));
      for (auto& source : all) {
        for (auto& map : source) map = {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()), 1};
      }
      auto wanted = all[0];
      for (std::size_t r = 1; r < sources; ++r) {
        for (std::size_t i = 0; i < count; ++i) wanted[i] = compose(wanted[i], all[r][i]);
      }
      std::vector<Map> apart(count);
      std::vector<void const*> from;
      for (auto const& source : all) from.push_back(source.data());
      std::array<void*, 2> const to{apart.data(), all.back().data()};  // the last source is a destination too
      std::size_t combined = 0;
      kernels::reduce(to, from, count, DataType::u32,
                      {ReduceOp::user, nullptr, {&compose_all, &combined, sizeof(Map)}});
      ASSERT_EQ(wanted, apart) << sources << " sources, " << count << " elements";
      ASSERT_EQ(wanted, all.back());
      EXPECT_EQ(count * (sources - 1), combined);
    }
  }
}

TEST(UserReduction, WithoutASizeTakesTheDataTypes) {
  std::array<std::int16_t, 3> a{1, -2, 3};
  std::array<std::int16_t, 3> b{10, 20, 30};
  std::array<void const*, 2> const from{a.data(), b.data()};
  void* const to = a.data();
  UserFunction const minus{[](void* accumulator, void const* next, std::size_t count, void*) {
    auto* const mine = static_cast<std::int16_t*>(accumulator);
    for (std::size_t i = 0; i < count; ++i)
      mine[i] = static_cast<std::int16_t>(mine[i] - static_cast<std::int16_t const*>(next)[i]);
  }};
  kernels::reduce({&to, 1}, from, a.size(), DataType::i16, {ReduceOp::user, nullptr, minus});
  EXPECT_EQ((std::array<std::int16_t, 3>{-9, -22, -27}), a);
}

}  // namespace
}  // namespace weft::test
