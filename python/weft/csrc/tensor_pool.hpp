#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include "device.hpp"
#include "weft/communicator.hpp"

namespace weft::torch_backend {

/// Symmetric memory that is used again. New memory is allocated by all ranks together, so whether there is to be some
/// may only depend on what all ranks know: the sizes asked for so far, not what has been freed. The first requests of a
/// size get new blocks, later ones what has come back.
///
/// On a GPU a block belongs to the stream that was current when it was asked for, as in torch's own allocator: once it
/// is freed, it is used again after what was on that stream by then.
class TensorPool : public std::enable_shared_from_this<TensorPool> {
 public:
  /// Where memory on a GPU belongs.
  struct Home {
    std::shared_ptr<GpuStreams> gpu;
    c10::Stream stream;
  };

  /// Blocks of a size: FSDP2 gathers the next layer's parameters while the last one's are in use.
  static constexpr int kBlocks = 3;

  class Block {
   public:
    Block(std::shared_ptr<TensorPool> pool, std::shared_ptr<Communicator> communicator, std::size_t size,
          std::optional<Home> home, Buffer memory)
        : pool_(std::move(pool)),
          communicator_(std::move(communicator)),
          size_(size),
          home_(std::move(home)),
          memory_(std::move(memory)) {}
    ~Block() {
      try {
        pool_->give_back(size_, home_, memory_);
      } catch (std::exception const& error) {  // of a GPU that fails: when the memory is free again nobody can say
        new Buffer(std::move(memory_));
        TORCH_WARN("weft: memory of allocate_tensor is kept for good: ", error.what());
      }
    }
    Block(Block const&) = delete;
    Block& operator=(Block const&) = delete;
    [[nodiscard]] void* data() const noexcept { return memory_.data(); }

   private:
    std::shared_ptr<TensorPool> pool_;
    std::shared_ptr<Communicator> communicator_;  // a GPU's memory goes before it
    std::size_t size_;
    std::optional<Home> home_;
    Buffer memory_;
  };

  /// Null where all blocks of the size are in use. Not zero-filled. `home`: of memory on a GPU.
  [[nodiscard]] std::shared_ptr<Block> take(std::shared_ptr<Communicator> const& communicator, std::size_t bytes,
                                            std::optional<Home> const& home = {}) {
    if (bytes == 0) return nullptr;
    auto const size = rounded(bytes);
    {
      std::lock_guard const lock(mutex_);
      auto& blocks = sizes_[{home.has_value(), size}];
      if (blocks.made == kBlocks) {
        if (blocks.idle.empty()) return nullptr;
        auto idle = std::move(blocks.idle.back());
        blocks.idle.pop_back();
        if (idle.freed) idle.freed->block(home->stream);
        return std::make_shared<Block>(shared_from_this(), communicator, size, home, std::move(idle.memory));
      }
      ++blocks.made;
    }
    auto const device = home ? weft_device(home->stream.device()) : Device{};
    return std::make_shared<Block>(shared_from_this(), communicator, size, home,
                                   communicator->allocate(size, DataType::u8, device));
  }

  /// Lets go of what is idle, and from now on of what is freed.
  void close() {
    std::map<std::pair<bool, std::size_t>, Blocks> idle;
    std::lock_guard const lock(mutex_);
    closed_ = true;
    idle.swap(sizes_);
    in_graphs_.clear();
  }

 private:
  struct Idle {
    Buffer memory;
    std::optional<c10::Event> freed;  ///< on a GPU
  };
  struct Blocks {
    int made = 0;
    std::vector<Idle> idle;
  };

  /// Up to an eighth more, so that nearly equal sizes share blocks.
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) noexcept {
    std::size_t step = 4096;
    while (step * 8 < bytes) step *= 2;
    return (bytes + step - 1) / step * step;
  }

  /// Takes `memory` unless it throws.
  void give_back(std::size_t size, std::optional<Home> const& home, Buffer& memory) {
    std::lock_guard const lock(mutex_);
    if (closed_) return;
    if (home && home->gpu->is_capturing(home->stream)) {
      in_graphs_.push_back(std::move(memory));  // each launch uses it again
      return;
    }
    std::optional<c10::Event> freed;
    if (home) freed.emplace(home->stream.device_type()).record(home->stream);
    sizes_[{home.has_value(), size}].idle.push_back({std::move(memory), std::move(freed)});
  }

  std::mutex mutex_;
  bool closed_ = false;
  std::vector<Buffer> in_graphs_;
  std::map<std::pair<bool, std::size_t>, Blocks> sizes_;  ///< by whether on a GPU, and bytes
};

}  // namespace weft::torch_backend
