#pragma once

#include <memory>
#include <string>

#include "collectives/nccl/nccl_functions.hpp"
#include "weft/config.hpp"

namespace weft::nccl {

/// An opened NCCL library.
struct NcclLibrary {
  NcclFunctions functions{};
  int version = 0;   ///< as NCCL_VERSION_CODE
  std::string path;  ///< where it was found

  /// Opens config.nccl_library, or else libnccl.so.2 where the loader finds it. A library that the process uses already
  /// (PyTorch's) is shared. It stays open until the process ends, because NCCL's threads run until then.
  /// @throws Error{unsupported}, saying what to install or set, if there is no library, or it is older than 2.28, or it
  /// lacks functions.
  [[nodiscard]] static std::shared_ptr<NcclLibrary const> open(Config const& config);
};

/// "2.28.9"
[[nodiscard]] std::string describe_version(int version);

/// Throws Error{system} (peer_lost where NCCL says that a remote process ended) with `call` and NCCL's own words,
/// unless `result` is ncclSuccess or ncclInProgress.
void check(NcclFunctions const& nccl, ncclResult_t result, char const* call, ncclComm_t communicator = nullptr);

}  // namespace weft::nccl
