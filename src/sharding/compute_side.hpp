#pragma once

#include <optional>
#include <utility>

#include "weft/buffer.hpp"
#include "weft/communicator.hpp"
#include "weft/event.hpp"
#include "weft/stream.hpp"
#include "weft/work.hpp"

namespace weft {

/// Where parameters and gradients are used, and so who waits for what brings them: the host, or a stream of a GPU, in
/// whose order all of this is then; the host goes on. Copies are the same side.
class ComputeSide {
 public:
  /// The host, or the GPU of `stream`.
  explicit ComputeSide(std::optional<Stream> stream = {}) : stream_(std::move(stream)) {}

  [[nodiscard]] bool is_gpu() const noexcept { return stream_.has_value(); }
  [[nodiscard]] Device device() const noexcept { return stream_ ? stream_->device() : Device{}; }
  [[nodiscard]] std::optional<Stream> const& stream() const noexcept { return stream_; }

  /// What is used from now on comes after it. @throws what made it fail; of a GPU what is known by now of all calls on
  /// `communicator`.
  void wait_for(Work const& work, Communicator const& communicator) const;
  void wait_for(Event const& event) const;
  /// What comes to `stream` from now on comes after all uses so far; on the host those are over.
  void lead(Stream const& stream) const;
  /// What is used from now on comes after all that came to `stream` so far.
  void follow(Stream const& stream) const;

  void zero(BufferView const& view) const;
  /// With NaN, of floating-point types.
  void overwrite(BufferView const& view) const;

 private:
  std::optional<Stream> stream_;
};

/// The failure that ends all calls on a GPU, where it is known by now. Asks nobody.
void throw_if_failed(Communicator const& communicator);

}  // namespace weft
