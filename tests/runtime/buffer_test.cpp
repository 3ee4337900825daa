#include "weft/buffer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "error_matchers.hpp"

namespace weft {
namespace {

TEST(Buffer, HostMemoryIsZeroAlignedAndWritable) {
  // Around the sizes where the allocator changes, and an odd large one.
  for (std::size_t const count : {0UL, 1UL, 63UL, 4096UL, (4UL << 20) - 1, 4UL << 20, (4UL << 20) + 1, 13'000'003UL}) {
    auto const buffer = Buffer::host(count, DataType::u8);
    EXPECT_EQ(buffer.count(), count);
    EXPECT_EQ(buffer.view().bytes(), count);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    auto const elements = buffer.as<std::uint8_t>();
    EXPECT_TRUE(std::all_of(elements.begin(), elements.end(), [](auto element) { return element == 0; }));
    std::fill(elements.begin(), elements.end(), std::uint8_t{0xA5});
  }
}

TEST(Buffer, HeapMemoryIsZeroAlsoWhenReused) {
  for (int round = 0; round < 50; ++round) {
    auto const elements_owner = Buffer::host(1000, DataType::i32);
    auto const elements = elements_owner.as<std::int32_t>();
    ASSERT_EQ(std::count(elements.begin(), elements.end(), 0), 1000);
    std::fill(elements.begin(), elements.end(), -1);
  }
}

TEST(Buffer, SpansOfEitherExtentAreViews) {
  std::array<float, 3> elements{};
  BufferView const whole = std::span(elements);
  ConstBufferView const read = std::span(std::as_const(elements));
  BufferView const dynamic = std::span<float>(elements);
  for (ConstBufferView const& view : {ConstBufferView(whole), read, ConstBufferView(dynamic)}) {
    EXPECT_EQ(view.data, elements.data());
    EXPECT_EQ(view.count, elements.size());
    EXPECT_EQ(view.dtype, DataType::f32);
  }
}

TEST(Buffer, AsNamesBothTypes) {
  auto const buffer = Buffer::host(4, DataType::bf16);
  EXPECT_EQ(buffer.as<BFloat16>().size(), 4U);
  test::expect_error(ErrorCode::invalid_argument, {"bf16", "f64"}, [&] { (void)buffer.as<double>(); });
}

TEST(Buffer, ImpossibleSizesAreOutOfMemory) {
  auto const huge = std::numeric_limits<std::size_t>::max();
  for (auto const count : {huge, huge / 8, huge / 8 + 1, std::size_t{1} << 59}) {
    test::expect_error(ErrorCode::out_of_memory, {"f64", std::to_string(count).c_str()},
                       [count] { (void)Buffer::host(count, DataType::f64); });
  }
}

TEST(Buffer, UnknownTypeIsAnError) {
  test::expect_error(ErrorCode::invalid_argument, {"77"}, [] { (void)Buffer::host(1, static_cast<DataType>(77)); });
}

TEST(Buffer, MovesWithoutMovingTheMemory) {
  auto from = Buffer::host(8, DataType::f32);
  auto* const data = from.data();
  Buffer const to = std::move(from);
  EXPECT_EQ(to.data(), data);
}

TEST(BufferView, SliceCountsElements) {
  auto const buffer = Buffer::host(10, DataType::f64);
  auto const part = buffer.view().slice(3, 4);
  EXPECT_EQ(part.data, buffer.as<double>().data() + 3);
  EXPECT_EQ(part.count, 4U);
  EXPECT_EQ(part.bytes(), 32U);
  ConstBufferView const read_only = part;
  EXPECT_EQ(read_only.data, part.data);
}

}  // namespace
}  // namespace weft
