#include "checkpoint/tensor_type.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace weft {
namespace {

constexpr std::array<std::pair<DataType, std::string_view>, 16> kNames{{
    {DataType::i8, "I8"},
    {DataType::u8, "U8"},
    {DataType::i16, "I16"},
    {DataType::u16, "U16"},
    {DataType::i32, "I32"},
    {DataType::u32, "U32"},
    {DataType::i64, "I64"},
    {DataType::u64, "U64"},
    {DataType::f16, "F16"},
    {DataType::bf16, "BF16"},
    {DataType::f32, "F32"},
    {DataType::f64, "F64"},
    {DataType::f8e4m3, "F8_E4M3"},
    {DataType::f8e5m2, "F8_E5M2"},
    {DataType::c64, "C64"},
    {DataType::boolean, "BOOL"},
}};

}  // namespace

std::string_view safetensors_name(DataType dtype) noexcept {
  auto const found = std::find_if(kNames.begin(), kNames.end(), [&](auto const& one) { return one.first == dtype; });
  return found == kNames.end() ? std::string_view() : found->second;
}

std::optional<DataType> parse_safetensors_name(std::string_view name) noexcept {
  auto const found = std::find_if(kNames.begin(), kNames.end(), [&](auto const& one) { return one.second == name; });
  return found == kNames.end() ? std::nullopt : std::optional(found->first);
}

std::optional<std::size_t> count_of(std::span<std::size_t const> shape, std::size_t element_bytes) noexcept {
  auto const most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / element_bytes;
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  std::size_t count = 1;
  for (std::size_t const extent : shape) {
    if (extent > most / count) return std::nullopt;
    count *= extent;
  }
  return count;
}

}  // namespace weft
