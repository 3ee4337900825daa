#include "collectives/shm/process_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace weft::shm {

ProcessIdentity this_process() noexcept {
  struct stat names {};
  auto const known = ::stat("/proc/self/ns/pid", &names) == 0;
  return {::getpid(), known ? names.st_ino : 0};
}

}  // namespace weft::shm
