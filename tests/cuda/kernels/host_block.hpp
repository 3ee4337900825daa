#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

#include "kernels/cuda/block.hpp"

namespace weft::test {

/// A block whose threads run one after the other between meetings; from the first to the last, from the last to the
/// first, or scattered, as blocks go, so that what depends on their order shows.
template <unsigned kThreads>
class HostBlock {
 public:
  explicit HostBlock(unsigned index) : index_(index) {}

  [[nodiscard]] unsigned index() const { return index_; }

  template <typename F>
  void each_thread(F const& f) const {
    static_assert((kThreads & (kThreads - 1)) == 0);
    for (unsigned i = 0; i < kThreads; ++i) {
      unsigned const orders[] = {i, kThreads - 1 - i, (i * 2654435761U + index_) % kThreads};
      f(orders[index_ % 3]);
    }
  }

  template <typename T>
  struct PerThread {
    std::unique_ptr<T[]> values{new T[kThreads]};
    T& operator[](unsigned thread) { return values[thread]; }
  };

 private:
  unsigned index_;
};

/// Runs a kernel's body block after block.
template <typename Body>
void run_blocks(Body const& body, std::size_t blocks) {
  auto shared = std::make_unique<typename Body::Shared>();
  for (std::size_t index = 0; index < blocks; ++index) {
    std::memset(static_cast<void*>(shared.get()), 0xC5, sizeof *shared);  // a GPU's shared memory is not zero
    HostBlock<Body::kThreads> block(static_cast<unsigned>(index));
    body(block, *shared);
  }
}

}  // namespace weft::test
