#pragma once

#include <optional>
#include <utility>

#include "weft/buffer.hpp"
#include "weft/communicator.hpp"
#include "weft/event.hpp"
#include "weft/stream.hpp"
#include "weft/work.hpp"

namespace weft {

/// The side that uses parameters and gradients: the host, or one stream of a GPU. It is the side that waits for the
/// work that brings them. On the host the calling thread waits; on a GPU the stream does, all uses are in its order,
/// and the host goes on. Copies stand for the same side.
class ComputeSide {
 public:
  /// The host, or the GPU of `stream`.
  explicit ComputeSide(std::optional<Stream> stream = {}) : stream_(std::move(stream)) {}

  [[nodiscard]] bool is_gpu() const noexcept { return stream_.has_value(); }
  [[nodiscard]] Device device() const noexcept { return stream_ ? stream_->device() : Device{}; }
  [[nodiscard]] std::optional<Stream> const& stream() const noexcept { return stream_; }

  /// Makes later uses come after `work` or `event`. @throws what made `work` fail; on a GPU, what is known by now of
  /// all calls on `communicator`.
  void wait_for(Work const& work, Communicator const& communicator) const;
  void wait_for(Event const& event) const;
  /// Makes what is enqueued on `stream` from now on come after all uses so far; on the host those are over already.
  void lead(Stream const& stream) const;
  /// Makes later uses come after everything enqueued on `stream` so far.
  void follow(Stream const& stream) const;

  void zero(BufferView const& view) const;
  /// Overwrites floating-point memory with NaN.
  void overwrite(BufferView const& view) const;

 private:
  std::optional<Stream> stream_;
};

/// Throws the failure that ends all calls on a GPU, where it is known by now. Asks nobody for it.
void throw_if_failed(Communicator const& communicator);

}  // namespace weft
