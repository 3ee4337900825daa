#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

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

/// Collective: one zero-filled segment of `bytes` that all `size` ranks map; `part_bytes` × rank is the part this rank
/// touches first (so that its pages are near it). Rank 0 makes a sealed memfd; peers open it through /proc/PID/fd/N, or
/// where that is forbidden receive it over an abstract socket; ranks that are threads of one process share one mapping.
/// Memory is committed here: exhaustion is an Error{out_of_memory} on every rank, not a SIGBUS later.
[[nodiscard]] std::shared_ptr<Mapping> create_segment(int rank, int size, std::size_t bytes, std::size_t part_bytes,
                                                      Exchange const& exchange);

/// Bytes this process may still take: the least of what the kernel has available and what its control groups allow.
[[nodiscard]] std::size_t available_memory();

}  // namespace weft::shm
