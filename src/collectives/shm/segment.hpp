#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/shm/unique_fd.hpp"

namespace weft::shm {

/// An owning mapping of shared memory. Unmapped on destruction; the memory is freed with the last mapping, even if
/// ranks are killed.
class Mapping {
 public:
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  Mapping(Mapping const&) = delete;
  Mapping& operator=(Mapping const&) = delete;
  ~Mapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

/// An all_gather of equally many bytes per rank, in rank order. Ranks use it to find one another's segments.
using Exchange = std::function<std::vector<std::byte>(std::span<std::byte const>)>;

/// Collective: every rank's value, in rank order.
template <typename T>
std::vector<T> gather(Exchange const& exchange, T const& mine) {
  auto const raw = exchange(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(raw.size() / sizeof(T));
  std::memcpy(static_cast<void*>(all.data()), raw.data(), all.size() * sizeof(T));
  return all;
}

/// Creates a memfd whose size nobody can change; -1 with `error_number` set when that fails.
[[nodiscard]] UniqueFd create_memfd(std::size_t bytes, int& error_number);
/// Maps all `bytes` of `fd` for reading and writing; null with `error_number` set when that fails.
[[nodiscard]] std::shared_ptr<Mapping> map_shared(int fd, std::size_t bytes, int& error_number);
/// Commits pages [begin, end) of the mapping of `fd` now, so that touching them cannot fail later; 0 or an errno.
[[nodiscard]] int commit(Mapping const& mapping, std::size_t begin, std::size_t end, int fd);
/// Opens another process's descriptor for this one; -1 with `error_number` set when that fails.
[[nodiscard]] UniqueFd open_descriptor(std::int64_t pid, int descriptor, int& error_number);
/// A random number that nothing else has. Written into memory, it shows whether a pid and descriptor still lead there,
/// or to something that took their place.
[[nodiscard]] std::uint64_t fresh_nonce();

/// Collective: one zero-filled segment of `bytes` that all `size` ranks map; `part_bytes` × rank is the part this rank
/// touches first (so that its pages are near it). Rank 0 makes a sealed memfd; peers open it through /proc/PID/fd/N or,
/// where that is forbidden, receive it over an abstract socket. Ranks that are threads of one process share one
/// mapping. Memory is committed here: exhaustion is an Error{out_of_memory} on every rank, not a SIGBUS later.
[[nodiscard]] std::shared_ptr<Mapping> create_segment(int rank, int size, std::size_t bytes, std::size_t part_bytes,
                                                      Exchange const& exchange);

/// Bytes that this process may still take: the least of what the kernel has available and what its control groups (of
/// version 1 or 2) and their parents allow.
[[nodiscard]] std::size_t available_memory(std::filesystem::path const& groups = "/sys/fs/cgroup",
                                           std::filesystem::path const& own = "/proc/self/cgroup");

}  // namespace weft::shm
