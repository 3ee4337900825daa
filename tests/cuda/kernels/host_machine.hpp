#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/block.hpp"
#include "weft/buffer.hpp"
#include "weft/stream.hpp"

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

/// Stands for a GPU (src/optim/cuda/gpu.hpp): its memory is the host's, and kernels' bodies run block after block.
class HostMachine {
 public:
  [[nodiscard]] Device device() const noexcept { return {DeviceType::cuda, 0}; }

  [[nodiscard]] Buffer allocate(std::size_t bytes) const {
    Buffer memory = Buffer::host(bytes + 1, DataType::u8);  // never null
    ++counters_->allocations;
    void* const address = memory.data();
    std::shared_ptr<void> owner(address, [kept = std::make_shared<Buffer>(std::move(memory))](void*) {});
    return {std::move(owner), bytes, DataType::u8, device()};
  }
  void write(void* to, void const* from, std::size_t bytes) const {
    ++counters_->waits;
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void read(void* to, void const* from, std::size_t bytes) const {
    ++counters_->waits;
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void synchronize() const { ++counters_->waits; }
  [[nodiscard]] bool is_capturing(Stream const* /*stream*/) const { return counters_->capturing; }

  template <typename Body>
  void launch(Body const& body, std::size_t blocks, Stream const* /*stream*/) const {
    if (blocks == 0) return;
    ++counters_->launches;
    auto shared = std::make_unique<typename Body::Shared>();
    for (std::size_t index = 0; index < blocks; ++index) {
      std::memset(static_cast<void*>(shared.get()), 0xC5, sizeof *shared);  // a GPU's shared memory is not zero
      HostBlock<Body::kThreads> block(static_cast<unsigned>(index));
      body(block, *shared);
    }
  }

  /// What has been asked for, of all copies.
  struct Counters {
    int launches = 0;
    int allocations = 0;
    int waits = 0;
    bool capturing = false;
  };
  [[nodiscard]] Counters& counters() const { return *counters_; }

 private:
  std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
};

}  // namespace weft::test
