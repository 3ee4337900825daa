#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weft_doctor/dump.hpp"

namespace weft::doctor {

/// Calls of one communicator that were equal and went the same way.
struct CallPath {
  std::string communicator;
  std::string name{};  ///< the application's for it; may be empty
  std::string call;    ///< "all_reduce(1024 × f32, sum)"
  std::string path;    ///< "zero copy"; "copied: rank 1's send buffer …"
  std::size_t calls = 0;
};

/// How the calls went that have ended and are told of, by communicator, those most often made first. Ranks tell the
/// same, so each call is counted once. Pure.
[[nodiscard]] std::vector<CallPath> summarise_paths(std::vector<Dump> const& dumps);

}  // namespace weft::doctor
