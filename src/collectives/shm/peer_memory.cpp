#include "collectives/shm/peer_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string_view>

#include "kernels/cpu/reduce.hpp"
#include "weft/error.hpp"

namespace weft::shm {
namespace {

/// Moves all `bytes`, however few the kernel's function `copy` moves at once.
template <typename Copy>
void move(pid_t pid, std::string_view what, Copy copy, void* here, void* there, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    iovec const local{static_cast<std::byte*>(here) + done, bytes - done};
    iovec const remote{static_cast<std::byte*>(there) + done, bytes - done};
    auto const copied = copy(pid, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) {
      throw Error(ErrorCode::system, fmt::format("process {} cannot be {}: {}; WEFT_READ_PEERS=0 does without", pid,
                                                 what, copied == 0 ? "nothing was copied" : std::strerror(errno)));
    }
    done += static_cast<std::size_t>(copied);
  }
}

}  // namespace

PeerProcess describe_this_process() {
  static std::uint64_t word =  // not constant: peers try to write it
      (std::uint64_t{std::random_device{}()} << 32U) | std::random_device{}();
  return {::getpid(), reinterpret_cast<std::uintptr_t>(&word), word};
}

bool can_reach(PeerProcess const& peer) noexcept try {
  if (peer.pid == ::getpid()) return true;
  std::uint64_t word = 0;
  auto const pid = static_cast<pid_t>(peer.pid);
  auto* const address = reinterpret_cast<void*>(peer.word_address);
  read_memory(pid, address, &word, sizeof word);
  if (word != peer.word) return false;
  write_memory(pid, address, &word, sizeof word);
  return true;
} catch (Error const&) {
  return false;
}

void read_memory(pid_t pid, void const* address, void* destination, std::size_t bytes) {
  if (pid == ::getpid()) return kernels::copy(destination, address, bytes);
  move(pid, "read from", ::process_vm_readv, destination,
       const_cast<void*>(address),  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
       bytes);
}

void write_memory(pid_t pid, void* address, void const* source, std::size_t bytes) {
  if (pid == ::getpid()) return kernels::copy(address, source, bytes);
  move(pid, "written to", ::process_vm_writev,
       const_cast<void*>(source),  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
       address, bytes);
}

}  // namespace weft::shm
