#include "core/describe_errno.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace weft {
namespace {

bool limits_memory() noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

char const* remedy(int error) noexcept {
  switch (error) {
    case EMFILE: return "; allow more (ulimit -n)";
    case ENFILE: return "; the machine allows no more (sysctl fs.file-max)";
    case EFBIG: return "; allow larger files (ulimit -f)";
    case ENOMEM: return limits_memory() ? "; this process may have no more (ulimit -v)" : "";
    default: return "";
  }
}

}  // namespace

std::string describe_errno(int error) {
  return std::string(std::strerror(error)) + remedy(error);
}

}  // namespace weft
