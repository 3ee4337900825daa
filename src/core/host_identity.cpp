#include "core/host_identity.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

namespace weft {

std::string host_identity(Config const& config) {
  if (config.host_id) return *config.host_id;
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat processes {};
  if (::stat("/proc/self/ns/pid", &processes) == 0) boot_id += fmt::format("/{}", processes.st_ino);
  return boot_id.substr(0, kMostHostIdCharacters);
}

}  // namespace weft
