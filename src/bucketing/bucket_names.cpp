#include "bucketing/bucket_names.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

std::string name_tensors(Bucket const& bucket) {
  constexpr std::size_t kMost = 6;
  std::size_t const named = std::min(bucket.slots.size(), kMost);
  std::string names = named == 0 ? "none" : "";
  for (std::size_t i = 0; i < named; ++i) names += fmt::format("{}{}", i == 0 ? "" : ", ", bucket.slots[i].tensor);
  if (named < bucket.slots.size()) names += fmt::format(" and {} more", bucket.slots.size() - named);
  return names;
}

}  // namespace weft
