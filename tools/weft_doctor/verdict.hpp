#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::doctor {

/// What is wrong with a communicator. If several apply, the first one counts.
enum class Finding {
  nothing,       ///< no rank waits for another
  missing_dump,  ///< a rank wrote no dump
  mismatch,      ///< ranks made different calls
  unanswered,    ///< a rank waits for a message whose other side has not been started
  behind,        ///< a rank never reached a call in which others wait or failed
  late,          ///< a rank reached a call after the others had given up
  failed,        ///< a call failed, and no rank stands out
  unmade,        ///< a rank never came to make the communicator
};

[[nodiscard]] char const* to_string(Finding finding) noexcept;

struct Verdict {
  std::string communicator;  ///< "not made yet" if ranks are still making it
  std::string name{};        ///< the application's name for it; may be empty
  int size = 1;
  Finding finding = Finding::nothing;
  std::vector<int> culprits{};          ///< ranks to look at, ascending
  std::optional<std::uint64_t> call{};  ///< number of the call that they have not made, or made differently
  std::string sentence;                 ///< for people
};

struct DiagnosisOptions {
  /// Shorter waits are normal, because the ranks of a healthy job do not write their dumps at the same instant.
  std::chrono::nanoseconds least_wait = std::chrono::seconds(1);
};

}  // namespace weft::doctor
