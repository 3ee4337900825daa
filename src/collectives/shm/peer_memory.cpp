#include "collectives/shm/peer_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "kernels/cpu/reduce.hpp"
#include "weft/error.hpp"

namespace weft::shm {

PeerProcess describe_this_process() {
  static std::uint64_t const word = (std::uint64_t{std::random_device{}()} << 32U) | std::random_device{}();
  return {::getpid(), reinterpret_cast<std::uintptr_t>(&word), word};
}

bool can_read(PeerProcess const& peer) noexcept try {
  if (peer.pid == ::getpid()) return true;
  std::uint64_t word = 0;
  read_memory(static_cast<pid_t>(peer.pid), reinterpret_cast<void const*>(peer.word_address), &word, sizeof word);
  return word == peer.word;
} catch (Error const&) {
  return false;
}

void read_memory(pid_t pid, void const* address, void* destination, std::size_t bytes) {
  if (pid == ::getpid()) return kernels::copy(destination, address, bytes);
  while (bytes > 0) {
    iovec const local{destination, bytes};
    iovec const remote{const_cast<void*>(address), bytes};  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
    auto const copied = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) {
      throw Error(ErrorCode::system, fmt::format("process {} cannot be read from: {}; WEFT_READ_PEERS=0 does without",
                                                 pid, copied == 0 ? "nothing was copied" : std::strerror(errno)));
    }
    auto const done = static_cast<std::size_t>(copied);
    address = static_cast<std::byte const*>(address) + done;
    destination = static_cast<std::byte*>(destination) + done;
    bytes -= done;
  }
}

}  // namespace weft::shm
