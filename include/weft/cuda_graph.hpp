#pragma once

#include <functional>
#include <memory>

#include "weft/stream.hpp"

namespace weft::cuda {

/// A CUDA graph: work that is enqueued once and launched many times, as one call of the host. In libraries built with
/// WEFT_WITH_CUDA. Copies share it. Launches of one graph run one after the other; what it reads and writes lives until
/// the last has run. Thread-safe but for making one.
class Graph {
 public:
  /// Records what `enqueue` puts on `stream`, and on streams that wait for it and that it waits for at the end; none of
  /// it runs. `enqueue` may neither wait for the GPU nor allocate but in a stream's order, and calls with arguments by
  /// value repeat those. @throws what `enqueue` throws, and then nothing stays recorded; Error{invalid_argument} for a
  /// CPU stream or one that is being recorded.
  [[nodiscard]] static Graph record(Stream const& stream, std::function<void()> const& enqueue);

  /// Enqueues all of it on `stream`, of the same device. Neither waits nor allocates.
  void launch(Stream const& stream) const;

 private:
  class Impl;
  explicit Graph(std::shared_ptr<Impl const> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl const> impl_;
};

/// Whether what is enqueued on the stream becomes part of a graph, whoever records it. False for a CPU stream.
[[nodiscard]] bool is_capturing(Stream const& stream);

}  // namespace weft::cuda
