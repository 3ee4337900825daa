#include "core/host_identity.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "core/describe_errno.hpp"
#include "weft/error.hpp"

namespace weft {

std::string boot_id() {
  constexpr auto* kPath = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  if (!file && (errno == EMFILE || errno == ENFILE)) {
    // Without the boot id this process would seem to be on a host of its own.
    throw Error(ErrorCode::system, fmt::format("cannot read {}: {}", kPath, describe_errno(errno)));
  }
  std::string id;
  file >> id;
  return id;
}

std::string host_identity(Config const& config) {
  if (config.host_id) return *config.host_id;
  auto id = boot_id();
  struct stat processes {};
  if (::stat("/proc/self/ns/pid", &processes) == 0) id += fmt::format("/{}", processes.st_ino);
  return id.substr(0, kMostHostIdCharacters);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string host_name(Config const& config) {
  return config.host_id.value_or(host_name());
}

}  // namespace weft
