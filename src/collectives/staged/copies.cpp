#include "collectives/staged/copies.hpp"

#include <algorithm>

namespace weft::staged {

void add_row(Copies& copies, std::byte* to, std::byte const* from, std::size_t width) {
  if (width == 0) return;
  if (!copies.empty()) {
    auto& last = copies.back();
    auto const to_pitch = to - (last.to + (last.rows - 1) * last.to_pitch);
    auto const from_pitch = from - (last.from + (last.rows - 1) * last.from_pitch);
    auto const least = static_cast<std::ptrdiff_t>(width);
    auto const most = static_cast<std::ptrdiff_t>(Copy::kMostPitch);
    bool const fits =
        last.width == width && std::min(to_pitch, from_pitch) >= least && std::max(to_pitch, from_pitch) <= most;
    bool const goes_on = last.rows == 1 || (to_pitch == static_cast<std::ptrdiff_t>(last.to_pitch) &&
                                            from_pitch == static_cast<std::ptrdiff_t>(last.from_pitch));
    if (fits && goes_on) {
      last.to_pitch = static_cast<std::size_t>(to_pitch);
      last.from_pitch = static_cast<std::size_t>(from_pitch);
      ++last.rows;
      return;
    }
  }
  copies.push_back({to, from, width, 1, 0, 0});
}

}  // namespace weft::staged
