#include "weft_doctor/words.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::doctor {

std::string name_ranks(std::vector<int> const& ranks) {
  std::vector<std::string> parts;
  for (std::size_t first = 0; first < ranks.size();) {
    auto last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < first + 2) last = first;  // two in a row are shorter as they are
    parts.push_back(last == first ? fmt::format("{}", ranks[first])
                                  : fmt::format("{} to {}", ranks[first], ranks[last]));
    first = last + 1;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

std::string name_duration(std::int64_t ns) {
  auto const seconds = static_cast<double>(std::max<std::int64_t>(ns, 0)) * 1e-9;
  return seconds < 0.1 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

std::string name_call(RecordedCall const& call) {
  return fmt::format("{}, call {}", call.text, call.sequence);
}

}  // namespace weft::doctor
