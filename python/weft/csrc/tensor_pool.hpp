#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/communicator.hpp"

namespace weft::torch_backend {

/// Symmetric memory that is used again. New memory is allocated by all ranks together, so whether there is to be some
/// may only depend on what all ranks know: the sizes asked for so far, not what has been freed. The first requests of a
/// size get new blocks, later ones what has come back.
class TensorPool : public std::enable_shared_from_this<TensorPool> {
 public:
  /// Blocks of a size: FSDP2 gathers the next layer's parameters while the last one's are in use.
  static constexpr int kBlocks = 3;

  class Block {
   public:
    Block(std::shared_ptr<TensorPool> pool, std::size_t size, Buffer memory)
        : pool_(std::move(pool)), size_(size), memory_(std::move(memory)) {}
    ~Block() { pool_->give_back(size_, std::move(memory_)); }
    Block(Block const&) = delete;
    Block& operator=(Block const&) = delete;
    [[nodiscard]] void* data() const noexcept { return memory_.data(); }

   private:
    std::shared_ptr<TensorPool> pool_;
    std::size_t size_;
    Buffer memory_;
  };

  /// Null where all blocks of the size are in use. Not zero-filled.
  [[nodiscard]] std::shared_ptr<Block> take(Communicator& communicator, std::size_t bytes) {
    if (bytes == 0) return nullptr;
    auto const size = rounded(bytes);
    {
      std::lock_guard const lock(mutex_);
      auto& blocks = sizes_[size];
      if (blocks.made == kBlocks) {
        if (blocks.idle.empty()) return nullptr;
        auto memory = std::move(blocks.idle.back());
        blocks.idle.pop_back();
        return std::make_shared<Block>(shared_from_this(), size, std::move(memory));
      }
      ++blocks.made;
    }
    return std::make_shared<Block>(shared_from_this(), size, communicator.allocate(size, DataType::u8));
  }

 private:
  struct Blocks {
    int made = 0;
    std::vector<Buffer> idle;
  };

  /// Up to an eighth more, so that nearly equal sizes share blocks.
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) noexcept {
    std::size_t step = 4096;
    while (step * 8 < bytes) step *= 2;
    return (bytes + step - 1) / step * step;
  }

  void give_back(std::size_t size, Buffer memory) {
    std::lock_guard const lock(mutex_);
    sizes_[size].idle.push_back(std::move(memory));
  }

  std::mutex mutex_;
  std::map<std::size_t, Blocks> sizes_;
};

}  // namespace weft::torch_backend
