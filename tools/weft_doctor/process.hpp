#pragma once

#include <string>
#include <utility>

#include "weft_doctor/dump.hpp"

namespace weft::doctor {

using Process = std::pair<std::string, long>;  // host, pid

[[nodiscard]] inline Process process_of(Dump const& dump) {
  return {dump.host, dump.pid};
}

}  // namespace weft::doctor
