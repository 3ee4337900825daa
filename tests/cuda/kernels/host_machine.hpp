#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "cuda/kernels/host_block.hpp"
#include "weft/buffer.hpp"
#include "weft/stream.hpp"

namespace weft::test {

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
    run_blocks(body, blocks);
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
