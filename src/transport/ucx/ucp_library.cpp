#include "transport/ucx/ucp_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::ucx {

std::shared_ptr<UcpLibrary const> UcpLibrary::open() {
  void* const handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("UCX cannot be loaded ({}): install libucx0, 1.13 or newer, on every host", dlerror()));
  }
  auto library = std::make_shared<UcpLibrary>();
  auto const find = [&]<typename Function>(Function& function, char const* name) {
    // Finds the functions of libucs too, since libucp depends on it.
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) {
      throw Error(ErrorCode::unsupported, fmt::format("UCX lacks {}: install libucx0, 1.13 or newer", name));
    }
  };
#define WEFT_UCP_FIND(name) find(library->name, #name);
  WEFT_UCP_FUNCTIONS(WEFT_UCP_FIND)
#undef WEFT_UCP_FIND
  return library;
}

void UcpLibrary::check(ucs_status_t status, char const* call) const {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::system, fmt::format("{}: {}; UCX_LOG_LEVEL=info says more", call, ucs_status_string(status)));
}

}  // namespace weft::ucx
