#pragma once

#include <vector>

#include "weft_doctor/dump.hpp"
#include "weft_doctor/verdict.hpp"

namespace weft::doctor {

/// A verdict for each communicator that ranks are still making, and to which others have not come.
[[nodiscard]] std::vector<Verdict> find_unmade(std::vector<Dump> const& dumps, DiagnosisOptions const& options);

}  // namespace weft::doctor
