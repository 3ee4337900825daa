#pragma once

#include <vector>

#include "weft_doctor/dump.hpp"
#include "weft_doctor/verdict.hpp"

namespace weft::doctor {

using Dumps = std::vector<Dump const*>;  // of one communicator, by rank

/// What is wrong with the communicator of `dumps`, of which there is at least one. `all`: every communicator's dumps,
/// which tell what ranks without a dump here do instead.
[[nodiscard]] Verdict examine(Dumps dumps, std::vector<Dump> const& all, DiagnosisOptions const& options);

}  // namespace weft::doctor
