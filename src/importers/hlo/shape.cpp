#include "importers/hlo/shape.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::hlo {

int bits_of_type(std::string_view type) noexcept {
  constexpr std::array kTypes{
      std::pair{"bf16", 16},  std::pair{"f32", 32},  std::pair{"s32", 32},   std::pair{"pred", 8}, std::pair{"u32", 32},
      std::pair{"f16", 16},   std::pair{"f64", 64},  std::pair{"s8", 8},     std::pair{"u8", 8},   std::pair{"s64", 64},
      std::pair{"u64", 64},   std::pair{"s16", 16},  std::pair{"u16", 16},   std::pair{"s4", 4},   std::pair{"u4", 4},
      std::pair{"s2", 2},     std::pair{"u2", 2},    std::pair{"s1", 1},     std::pair{"u1", 1},   std::pair{"c64", 64},
      std::pair{"c128", 128}, std::pair{"token", 0}, std::pair{"opaque", 0},
  };
  auto const* const found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](auto const& known) { return type == known.first; });
  if (found != kTypes.end()) return found->second;
  if (type.starts_with("f8e")) return 8;
  if (type.starts_with("f4e")) return 4;
  return -1;
}

std::vector<std::int64_t> layout_of(Shape const& array) {
  if (array.layout.size() == array.dims.size()) return array.layout;
  std::vector<std::int64_t> layout(array.dims.size());
  for (std::size_t i = 0; i < layout.size(); ++i) layout[i] = static_cast<std::int64_t>(layout.size() - 1 - i);
  return layout;
}

}  // namespace weft::hlo
