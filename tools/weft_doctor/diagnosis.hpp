#pragma once

#include <vector>

#include "weft_doctor/dump.hpp"
#include "weft_doctor/verdict.hpp"

namespace weft::doctor {

/// One verdict per communicator, ordered by identity, then one per communicator that ranks are still making. Looks at
/// nothing but the dumps. @throws BadInput if there are no dumps, or they contradict one another or are of several
/// jobs.
[[nodiscard]] std::vector<Verdict> diagnose(std::vector<Dump> const& dumps, DiagnosisOptions const& options = {});

}  // namespace weft::doctor
