#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/shm/unique_fd.hpp"

namespace weft::shm {

/// An owning mapping of shared memory. Unmapped on destruction; the memory goes when the last mapping does, whatever
/// kills the ranks.
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

/// all_gather of equally many bytes per rank, in rank order: what the ranks find one another's segments with.
using Exchange = std::function<std::vector<std::byte>(std::span<std::byte const>)>;

/// Every rank's value.
template <typename T>
std::vector<T> gather(Exchange const& exchange, T const& mine) {
  auto const raw = exchange(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(raw.size() / sizeof(T));
  std::memcpy(static_cast<void*>(all.data()), raw.data(), all.size() * sizeof(T));
  return all;
}

/// A memfd whose size nobody can change. -1 with `error_number` set when there is none.
[[nodiscard]] UniqueFd create_memfd(std::size_t bytes, int& error_number);
/// All of `fd`'s `bytes`, for reading and writing; null with `error_number` set when that fails.
[[nodiscard]] std::shared_ptr<Mapping> map_shared(int fd, std::size_t bytes, int& error_number);
/// Commits pages [begin, end) of the mapping of `fd` now, so that touching them cannot fail later; 0 or an errno.
[[nodiscard]] int commit(Mapping const& mapping, std::size_t begin, std::size_t end, int fd);
/// Another process's descriptor. -1 with `error_number` set when it cannot be had.
[[nodiscard]] UniqueFd open_descriptor(std::int64_t pid, int descriptor, int& error_number);
/// A number that nothing else has: tells memory apart from what took the place of a descriptor or process that ended.
[[nodiscard]] std::uint64_t fresh_nonce();

/// Collective: one zero-filled segment of `bytes` that all `size` ranks map; `part_bytes` × rank is the part this rank
/// touches first (so that its pages are near it). Rank 0 makes a sealed memfd; peers open it through /proc/PID/fd/N, or
/// where that is forbidden receive it over an abstract socket; ranks that are threads of one process share one mapping.
/// Memory is committed here: exhaustion is an Error{out_of_memory} on every rank, not a SIGBUS later.
[[nodiscard]] std::shared_ptr<Mapping> create_segment(int rank, int size, std::size_t bytes, std::size_t part_bytes,
                                                      Exchange const& exchange);

/// Bytes this process may still take: the least of what the kernel has available and what its control groups allow.
[[nodiscard]] std::size_t available_memory();

}  // namespace weft::shm
