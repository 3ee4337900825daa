#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weft_doctor/dump.hpp"

namespace weft::doctor {

/// Equal calls of one communicator whose bytes were moved in the same way.
struct CallPath {
  std::string communicator;
  std::string name{};  ///< the application's name for it; may be empty
  std::string call;    ///< "all_reduce(1024 × f32, sum)"
  std::string path;    ///< "zero copy"; "copied: rank 1's send buffer …"
  std::size_t calls = 0;
};

/// How the bytes of finished calls were moved, as far as the dumps tell, by communicator, with the most frequent calls
/// first. All ranks tell the same, so each call is counted once. Looks at nothing but the dumps.
[[nodiscard]] std::vector<CallPath> summarise_paths(std::vector<Dump> const& dumps);

}  // namespace weft::doctor
