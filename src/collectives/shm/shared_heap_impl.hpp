#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "collectives/shm/block_pool.hpp"
#include "collectives/shm/fork_guards.hpp"
#include "collectives/shm/segment.hpp"
#include "collectives/shm/unique_fd.hpp"
#include "weft/shared_heap.hpp"

namespace weft {

/// A memfd of the heap's capacity, mapped as a whole. Only [0, committed) has memory behind it: the first page holds
/// the nonce that says which heap it is, the rest is blocks and what the pool has free.
class SharedHeap::Impl {
 public:
  /// The first bytes, which are not used for blocks.
  static constexpr std::size_t kHeaderBytes = 4096;

  Impl(shm::UniqueFd fd, std::shared_ptr<shm::Mapping> mapping, std::uint64_t nonce);

  [[nodiscard]] void* allocate(std::size_t bytes);
  void deallocate(void* block);
  [[nodiscard]] Usage usage() const;

  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  /// False in a forked child: what it writes is its own, and not in the descriptor's file.
  [[nodiscard]] bool is_shared() const;
  [[nodiscard]] std::shared_ptr<shm::Mapping> const& mapping() const noexcept { return mapping_; }
  [[nodiscard]] int descriptor() const noexcept { return fd_.get(); }
  [[nodiscard]] std::uint64_t nonce() const noexcept { return nonce_; }

  /// Another heap's mapping that this rank already has for some communicator; null when it has none.
  [[nodiscard]] std::shared_ptr<shm::Mapping> known_peer(std::uint64_t nonce) const;
  void remember_peer(std::uint64_t nonce, std::shared_ptr<shm::Mapping> const& mapping);

 private:
  struct Block {
    std::size_t bytes = 0;
    std::uint64_t forks = 0;  // number of forks before it was allocated
  };
  struct Withheld {
    std::size_t offset = 0;
    Block block;
  };
  struct Peer {
    std::uint64_t nonce = 0;
    std::weak_ptr<shm::Mapping> mapping;
  };

  /// Frees withheld blocks that no child knows any more; returns whether there were some.
  bool release_withheld();
  /// Commits more, so that `bytes` in a row are free at the end; returns whether that worked.
  bool grow(std::size_t bytes);
  bool commit_to(std::size_t end);

  shm::UniqueFd fd_;
  std::shared_ptr<shm::Mapping> mapping_;
  std::uint64_t nonce_;

  mutable std::mutex mutex_;  // of all below; held across fork()
  bool serves_ = true;
  std::size_t committed_ = kHeaderBytes;
  std::size_t in_use_ = 0;
  shm::BlockPool pool_;
  std::unordered_map<std::size_t, Block> blocks_;
  shm::ForkGuards guards_;
  std::vector<Withheld> withheld_;

  mutable std::mutex peers_mutex_;
  std::vector<Peer> peers_;
};

}  // namespace weft
