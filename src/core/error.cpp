#include "weft/error.hpp"

namespace weft {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::mismatch: return "mismatch";
    case ErrorCode::peer_lost: return "peer_lost";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::system: return "system";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string const& message) : std::runtime_error(message), code_(code) {}

}  // namespace weft
