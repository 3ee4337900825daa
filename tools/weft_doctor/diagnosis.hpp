#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft_doctor/dump.hpp"

namespace weft::doctor {

/// What is wrong with a communicator; the first that applies.
enum class Finding {
  nothing,       ///< nobody waits for anybody
  missing_dump,  ///< some rank wrote nothing down
  mismatch,      ///< ranks made different calls
  unanswered,    ///< some rank waits for a message of which another has not begun its side
  behind,        ///< some rank never reached a call in which others wait or failed
  late,          ///< some rank came to a call after the others had given it up
  failed,        ///< a call failed, and no rank stands out
  unmade,        ///< some rank never came to make it
};

[[nodiscard]] char const* to_string(Finding finding) noexcept;

struct Verdict {
  std::string communicator;  ///< "not made yet": one that ranks are making
  std::string name{};        ///< the application's for it; may be empty
  int size = 1;
  Finding finding = Finding::nothing;
  std::vector<int> culprits{};          ///< ranks to look at, ascending
  std::optional<std::uint64_t> call{};  ///< number of the call that they miss, or made differently
  std::string sentence;                 ///< for people
};

struct DiagnosisOptions {
  /// Shorter waits are the ordinary kind: ranks of a healthy job do not write at the same instant.
  std::chrono::nanoseconds least_wait = std::chrono::seconds(1);
};

/// One verdict per communicator, by its identity, then one per communicator that some ranks wait to make. Pure: the
/// dumps are all that is looked at.
/// @throws BadInput for no dumps, contradictory ones, or those of several jobs.
[[nodiscard]] std::vector<Verdict> diagnose(std::vector<Dump> const& dumps, DiagnosisOptions const& options = {});

}  // namespace weft::doctor
