#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <string_view>

#include "collectives/nccl/nccl_library.hpp"
#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft::nccl {
namespace {

constexpr int kOldest = 22800;

/// Fills the table. Returns the name of the first required function that is missing, or null.
char const* find_all(void* library, NcclFunctions& nccl) {
  char const* missing = nullptr;
  auto const find = [&](char const* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
  auto const need = [&](char const* name, auto& function) {
    find(name, function);
    if (function == nullptr && missing == nullptr) missing = name;
  };
  need("ncclGetVersion", nccl.get_version);
  need("ncclGetUniqueId", nccl.get_unique_id);
  need("ncclGetErrorString", nccl.get_error_string);
  need("ncclGetLastError", nccl.get_last_error);
  need("ncclCommInitRankConfig", nccl.comm_init_rank_config);
  need("ncclCommSplit", nccl.comm_split);
  need("ncclCommShrink", nccl.comm_shrink);
  need("ncclCommFinalize", nccl.comm_finalize);
  need("ncclCommDestroy", nccl.comm_destroy);
  need("ncclCommAbort", nccl.comm_abort);
  need("ncclCommGetAsyncError", nccl.comm_get_async_error);
  need("ncclGroupStart", nccl.group_start);
  need("ncclGroupEnd", nccl.group_end);
  need("ncclAllReduce", nccl.all_reduce);
  need("ncclReduce", nccl.reduce);
  need("ncclReduceScatter", nccl.reduce_scatter);
  need("ncclAllGather", nccl.all_gather);
  need("ncclBroadcast", nccl.broadcast);
  need("ncclAlltoAll", nccl.all_to_all);
  need("ncclGather", nccl.gather);
  need("ncclScatter", nccl.scatter);
  need("ncclSend", nccl.send);
  need("ncclRecv", nccl.recv);
  need("ncclRedOpCreatePreMulSum", nccl.red_op_create_pre_mul_sum);
  need("ncclRedOpDestroy", nccl.red_op_destroy);
  need("ncclMemAlloc", nccl.mem_alloc);
  need("ncclMemFree", nccl.mem_free);
  need("ncclCommWindowRegister", nccl.comm_window_register);
  need("ncclCommWindowDeregister", nccl.comm_window_deregister);
  find("ncclCommRevoke", nccl.comm_revoke);
  return missing;
}

/// The path of the file that the loader found for `name`.
std::string path_of(void* library, std::string const& name) {
  link_map const* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || *map->l_name == '\0') return name;
  return map->l_name;
}

struct Search {
  std::string const& ours;
  std::string found{};
};

int note_other(dl_phdr_info* info, std::size_t /*size*/, void* search) {
  auto& looks = *static_cast<Search*>(search);
  std::string_view const path = info->dlpi_name;
  auto const file = path.substr(path.rfind('/') + 1);
  if (file.substr(0, 10) == "libnccl.so" && path != looks.ours) looks.found = path;
  return 0;
}

/// The path of another NCCL library in this process; empty if there is none.
std::string other_than(std::string const& ours) {
  Search looks{ours};
  ::dl_iterate_phdr(note_other, &looks);
  return looks.found;
}

}  // namespace

std::shared_ptr<NcclLibrary const> NcclLibrary::open(Config const& config) {
  auto const name = config.nccl_library.value_or("libnccl.so.2");
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("device memory needs NCCL 2.28 or newer: {}; install libnccl2, or set WEFT_NCCL_LIBRARY to "
                            "the library's path (PyTorch brings one, nvidia/nccl/lib/libnccl.so.2)",
                            ::dlerror()));
  }
  auto library = std::make_shared<NcclLibrary>();
  library->path = path_of(handle, name);
  char const* const missing = find_all(handle, library->functions);
  auto const& nccl = library->functions;
  if (nccl.get_version != nullptr && nccl.get_version(&library->version) != ncclSuccess) library->version = 0;
  if (missing != nullptr || library->version < kOldest) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{} is NCCL {}{}{}; Weft needs 2.28 or newer: update it, or set WEFT_NCCL_LIBRARY to a newer "
                    "one",
                    library->path, describe_version(library->version), missing == nullptr ? "" : ", which lacks ",
                    missing == nullptr ? "" : missing));
  }
  if (auto const other = other_than(library->path); !other.empty()) {
    log_once(
        LogLevel::warn,
        fmt::format("two NCCLs in one process, {} (Weft's) and {}: they take memory and the GPU's links twice; unset "
                    "WEFT_NCCL_LIBRARY to share the one that was there first",
                    library->path, other));
  }
  return library;
}

}  // namespace weft::nccl
