#pragma once

#include <string>

#include "weft/bucket_plan.hpp"

namespace weft {

/// The tensors in a bucket, for errors: "7, 6, 5"; of many only the first few: "7, 6, 5, 4, 3, 2 and 31 more"; "none".
[[nodiscard]] std::string name_tensors(Bucket const& bucket);

}  // namespace weft
