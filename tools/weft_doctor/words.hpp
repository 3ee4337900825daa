#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft_doctor/dump.hpp"

namespace weft::doctor {

/// "rank 2", "ranks 0 and 1", "ranks 0, 1 and 4 to 7"; ascending, not empty.
[[nodiscard]] std::string name_ranks(std::vector<int> const& ranks);
/// "12.3 s", "45 ms"; negative counts as 0.
[[nodiscard]] std::string name_duration(std::int64_t ns);
/// "all_reduce(1024 × f32, sum), call 17"
[[nodiscard]] std::string name_call(RecordedCall const& call);

}  // namespace weft::doctor
