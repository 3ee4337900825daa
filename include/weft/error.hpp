#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace weft {

/// What kind of failure an Error reports.
enum class ErrorCode {
  invalid_argument,  ///< the caller's mistake; nothing was sent, unless the call says otherwise
  mismatch,          ///< ranks made different calls; of host memory, nothing of those was used
  peer_lost,         ///< a rank died or left before reaching a collective
  timeout,           ///< a rank did not reach a collective in time
  aborted,           ///< abort() was called here or on a peer
  out_of_memory,     ///< host, shared or device memory is exhausted
  unsupported,       ///< this build or machine lacks the capability
  system,            ///< an operating-system or library call failed
};

/// The code's name as it appears in messages, e.g. "peer_lost".
std::string_view to_string(ErrorCode code) noexcept;

/// Every failure Weft reports. what() is one line: what happened, where (operation, rank, sequence number) and what to
/// do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string const& message);
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace weft
