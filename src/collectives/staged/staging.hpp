#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "collectives/staged/plan.hpp"
#include "runtime/cuda/cuda_functions.hpp"
#include "weft/buffer.hpp"
#include "weft/communicator.hpp"
#include "weft/reduction.hpp"

namespace weft::staged {

/// The slots that steps use in turn: the GPU fills one while the host works on another and the GPU empties a third.
/// They are symmetric host memory, so that ranks of a host read one another's slots in place, and pinned for the GPU.
class Staging {
 public:
  static constexpr std::size_t kSlots = 3;

  /// Bytes of each half of a slot for chunks of about `chunk_bytes`: at least one element for every rank.
  [[nodiscard]] static constexpr std::size_t region_for(std::size_t chunk_bytes, int ranks) noexcept {
    return std::max(chunk_bytes, static_cast<std::size_t>(ranks) * Reduction::kMaxElementBytes);
  }

  /// Collective over `host`. Throws on every rank, or none.
  Staging(Communicator& host, std::size_t region_bytes, int device, cuda::CudaFunctions const& cuda);
  ~Staging();
  Staging(Staging const&) = delete;
  Staging& operator=(Staging const&) = delete;

  [[nodiscard]] std::size_t region_bytes() const noexcept { return region_bytes_; }
  /// The slot of a job's step.
  [[nodiscard]] Slot slot(std::size_t step) const noexcept {
    auto* const at = static_cast<std::byte*>(memory_.data()) + step % kSlots * 2 * region_bytes_;
    return {at, at + region_bytes_};
  }

 private:
  void unregister() noexcept;

  std::size_t const region_bytes_;
  int const device_;
  cuda::CudaFunctions const& cuda_;
  Buffer memory_;
};

}  // namespace weft::staged
