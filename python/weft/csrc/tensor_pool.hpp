#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include "device.hpp"
#include "weft/communicator.hpp"

namespace weft::torch_backend {

/// A pool of symmetric memory. All ranks allocate new memory together, so whether to allocate may depend only on what
/// all ranks know: the sizes requested so far, not what has been freed. So the first requests of a size get new blocks,
/// and later ones get blocks that have been freed.
///
/// On a GPU a block belongs to the stream that was current when it was requested, as in torch's own allocator. After it
/// is freed, its next user waits for what was by then on that stream, and on the streams on which the group's calls
/// used it.
class TensorPool : public std::enable_shared_from_this<TensorPool> {
 public:
  /// The GPU and the stream that memory on a GPU belongs to.
  struct Home {
    std::shared_ptr<GpuStreams> gpu;
    c10::Stream stream;
  };

  /// The most blocks of one size: FSDP2 gathers the next layer's parameters while the previous one's are in use.
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
        pool_->give_back(size_, home_, uses_, memory_);
      } catch (std::exception const& error) {  // of a GPU that fails: when the memory is free again nobody can say
        new Buffer(std::move(memory_));
        TORCH_WARN("weft: memory of allocate_tensor is kept for good: ", error.what());
      }
    }
    Block(Block const&) = delete;
    Block& operator=(Block const&) = delete;
    [[nodiscard]] void* data() const noexcept { return memory_.data(); }
    /// On a GPU: the block's next user also waits for what is on `stream` when the block is freed.
    void record_use(c10::Stream stream) {
      std::lock_guard const lock(mutex_);
      if (stream != home_->stream && std::find(uses_.begin(), uses_.end(), stream) == uses_.end())
        uses_.push_back(stream);
    }

   private:
    std::shared_ptr<TensorPool> pool_;
    std::shared_ptr<Communicator> communicator_;  // a GPU's memory goes before it
    std::size_t size_;
    std::optional<Home> home_;
    std::mutex mutex_;
    std::vector<c10::Stream> uses_;
    Buffer memory_;
  };

  /// A flat tensor over the block, which is freed with the tensor.
  [[nodiscard]] static at::Tensor tensor_over(std::shared_ptr<Block> block, long size, c10::Device device,
                                              at::TensorOptions const& options) {
    auto* const data = block->data();
    return at::for_blob(data, {size})
        .context(new std::shared_ptr<Block>(std::move(block)), &let_go)
        .options(options.device(device))
        .target_device(device)
        .make_tensor();
  }
  /// The block that a tensor's memory is; null if it is not a block of a pool.
  [[nodiscard]] static Block* block_of(c10::DataPtr const& memory) noexcept {
    if (memory.get_deleter() != &let_go) return nullptr;
    return static_cast<std::shared_ptr<Block>*>(memory.get_context())->get();
  }

  /// Takes a block, not zero-filled; null if all blocks of the size are in use. `home` is for memory on a GPU.
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
        for (auto& event : idle.freed) event.block(home->stream);
        return std::make_shared<Block>(shared_from_this(), communicator, size, home, std::move(idle.memory));
      }
      ++blocks.made;
    }
    auto const device = home ? weft_device(home->stream.device()) : Device{};
    return std::make_shared<Block>(shared_from_this(), communicator, size, home,
                                   communicator->allocate(size, DataType::u8, device));
  }

  /// Releases all idle memory, and from now on also what is freed.
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
    std::vector<c10::Event> freed;  ///< on a GPU
  };
  struct Blocks {
    int made = 0;
    std::vector<Idle> idle;
  };

  static void let_go(void* block) { delete static_cast<std::shared_ptr<Block>*>(block); }

  /// Up to an eighth more, so that nearly equal sizes share blocks.
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) noexcept {
    std::size_t step = 4096;
    while (step * 8 < bytes) step *= 2;
    return (bytes + step - 1) / step * step;
  }

  /// Takes `memory` unless it throws.
  void give_back(std::size_t size, std::optional<Home> const& home, std::vector<c10::Stream> const& uses,
                 Buffer& memory) {
    std::lock_guard const lock(mutex_);
    if (closed_) return;
    auto const captured = [&](c10::Stream stream) { return home->gpu->is_capturing(stream); };
    if (home && (captured(home->stream) || std::any_of(uses.begin(), uses.end(), captured))) {
      in_graphs_.push_back(std::move(memory));  // every launch of the graph uses it
      return;
    }
    std::vector<c10::Event> freed;
    if (home) freed.emplace_back(home->stream.device_type()).record(home->stream);
    for (auto const stream : uses) freed.emplace_back(stream.device_type()).record(stream);
    sizes_[{home.has_value(), size}].idle.push_back({std::move(memory), std::move(freed)});
  }

  std::mutex mutex_;
  bool closed_ = false;
  std::vector<Buffer> in_graphs_;
  std::map<std::pair<bool, std::size_t>, Blocks> sizes_;  ///< by (is on a GPU, bytes)
};

}  // namespace weft::torch_backend
