#include "collectives/nccl/nccl_library.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::nccl {

std::string describe_version(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void check(NcclFunctions const& nccl, ncclResult_t result, char const* call, ncclComm_t communicator) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]]
    return;
  char const* const details = nccl.get_last_error(communicator);
  auto const code = result == ncclRemoteError ? ErrorCode::peer_lost : ErrorCode::system;
  auto const more = details == nullptr || *details == '\0' ? std::string() : fmt::format(": {}", details);
  throw Error(code, fmt::format("{}: {}{}; NCCL_DEBUG=WARN says more", call, nccl.get_error_string(result), more));
}

}  // namespace weft::nccl
