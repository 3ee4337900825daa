#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace weft::shm {

/// Where another rank finds this one's private memory.
struct PeerProcess {
  std::int64_t pid = 0;
  std::uint64_t word_address = 0;  ///< of a word to try
  std::uint64_t word = 0;          ///< what is there, different in every process
};

[[nodiscard]] PeerProcess describe_this_process();

/// Whether this process may read and write the memory of `peer`. The kernel may forbid it (ptrace scope, containers),
/// and the pid may be another process's where ranks see different process numbers. Tries it: reads the word and writes
/// it back as it was.
[[nodiscard]] bool can_reach(PeerProcess const& peer) noexcept;

/// Copies `bytes` out of another process's private memory, or this one's: a single copy, made by the kernel.
/// @throws Error{system} when the kernel refuses.
void read_memory(pid_t pid, void const* address, void* destination, std::size_t bytes);
/// The same into another process's private memory.
void write_memory(pid_t pid, void* address, void const* source, std::size_t bytes);

}  // namespace weft::shm
