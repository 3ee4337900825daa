#pragma once

#include <string>

#include "weft/bucket_plan.hpp"

namespace weft {

/// What is in a bucket, for errors: "7, 6, 5", the first few of many: "7, 6, 5, 4, 3, 2 and 31 more"; "none".
[[nodiscard]] std::string name_tensors(Bucket const& bucket);

}  // namespace weft
