#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/ucx/channel.hpp"

namespace weft::ucx {

/// Memory of each rank that other ranks write to without its taking part (remote access). All ranks make a window at
/// once; it has the same number on all, and an address of its own on each.
///
/// Any thread. After a failure another rank may still be writing, so a window's memory is then kept until this object
/// is destroyed, which outlives the channel.
class Windows : public std::enable_shared_from_this<Windows> {
 public:
  /// Where something lies. Ranks exchange it as bytes.
  struct Place {
    static constexpr std::uint64_t kNone = 0;

    std::uint64_t window = kNone;
    std::uint64_t offset = 0;  ///< bytes from its start
  };
  /// What another rank needs to write to a window.
  struct Key {
    std::uint64_t address = 0;
    std::vector<std::byte> packed{};
  };

  explicit Windows(Channel& channel) : channel_(&channel) {}
  Windows(Windows const&) = delete;
  Windows& operator=(Windows const&) = delete;

  // A window is made in two steps, begin() and complete(), by one thread at a time.

  /// Registers `memory` for the next window; empty where UCX cannot.
  [[nodiscard]] std::optional<Key> begin(std::shared_ptr<void> memory, std::size_t bytes);
  /// `keys`: of all ranks; empty where some rank has none, and then no window is made. Returns what owns the memory.
  [[nodiscard]] std::shared_ptr<void> complete(std::vector<Key> const& keys);
  /// Whether this rank can write to the latest window of every rank. Where some rank cannot, all disuse_latest().
  [[nodiscard]] bool reaches_latest() const noexcept;
  void disuse_latest() noexcept;

  /// The number of the first window whose memory this rank still holds. Windows before the first ones of all ranks are
  /// not needed by any rank, and may be forgotten.
  [[nodiscard]] std::uint64_t first_held() const noexcept;
  void forget_before(std::uint64_t number) noexcept;

  /// Whether any window was made; the same on all ranks.
  [[nodiscard]] bool has_any() const noexcept;
  /// Where `data` lies in a window that is still held.
  [[nodiscard]] Place find(void const* data, std::size_t bytes) const noexcept;
  /// Writes `bytes` to the memory of rank `to`, from `place` on. It is done when `bytes` may be written again.
  void start_put(Pending& operation, int to, std::span<std::byte const> bytes, Place const& place);

  /// To be called before the channel is destroyed.
  void close() noexcept;

 private:
  struct Window {
    std::shared_ptr<void> memory{};  ///< null once this rank has released it; other ranks may hold theirs for longer
    std::size_t bytes = 0;
    ucp_mem_h registration = nullptr;
    bool is_reached = true;  ///< all keys could be unpacked
    bool is_used = true;
    std::vector<std::uint64_t> addresses{};  ///< by rank
    std::vector<ucp_rkey_h> keys{};          ///< by rank; null for this one
  };

  void release(std::uint64_t number) noexcept;
  void drop_memory(Window& window) noexcept;
  void drop_keys(Window& window) noexcept;

  mutable std::mutex mutex_;
  Channel* channel_;  // null once closed
  Window next_;
  std::uint64_t latest_ = Place::kNone;
  std::map<std::uint64_t, Window> windows_;
  std::vector<std::shared_ptr<void>> kept_;  // memory released after a failure
};

}  // namespace weft::ucx
