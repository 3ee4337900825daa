#pragma once

#include <string>

#include "weft/error.hpp"

namespace weft::schedule_tool {

/// Reports that the user's input cannot be used.
[[noreturn]] inline void refuse(std::string const& why) {
  throw Error(ErrorCode::invalid_argument, why);
}

}  // namespace weft::schedule_tool
