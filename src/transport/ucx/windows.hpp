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

/// Memory of each rank that the others write to without its doing. A window is made by all ranks at once and has the
/// same number on all, at an address of each one's own.
///
/// Any thread. After a failure somebody may still be writing: a window's memory then stays until this goes, which
/// outlives the channel.
class Windows : public std::enable_shared_from_this<Windows> {
 public:
  /// Where something lies. Bytes: it is told from rank to rank.
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

  // The next window is made in two steps, by one thread at a time.

  /// Registers `memory`; empty where UCX cannot.
  [[nodiscard]] std::optional<Key> begin(std::shared_ptr<void> memory, std::size_t bytes);
  /// `keys`: of all ranks; empty where some have none, and no window is made. Returns the owner's hold on the memory.
  [[nodiscard]] std::shared_ptr<void> complete(std::vector<Key> const& keys);
  /// Whether this rank can write to all of the latest window. Where one cannot, all disuse() it.
  [[nodiscard]] bool reaches_latest() const noexcept;
  void disuse_latest() noexcept;

  /// The first window that this rank still holds. Others may write to each other's after that, and this rank to
  /// theirs; what is before all ranks' firsts is forgotten.
  [[nodiscard]] std::uint64_t first_held() const noexcept;
  void forget_before(std::uint64_t number) noexcept;

  /// Whether any was made: on all ranks or on none.
  [[nodiscard]] bool has_any() const noexcept;
  /// Where `data` lies in a window that is still held.
  [[nodiscard]] Place find(void const* data, std::size_t bytes) const noexcept;
  /// Writes `bytes` to `to`'s memory, from `place` on; done when they may be written again.
  void start_put(Pending& operation, int to, std::span<std::byte const> bytes, Place const& place);

  /// Before the channel goes.
  void close() noexcept;

 private:
  struct Window {
    std::shared_ptr<void> memory{};  ///< null once its owner has let go of it: others may hold theirs for longer
    std::size_t bytes = 0;
    ucp_mem_h registration = nullptr;
    bool is_reached = true;  ///< with all keys
    bool is_used = true;
    std::vector<std::uint64_t> addresses{};  ///< of each rank's
    std::vector<ucp_rkey_h> keys{};          ///< null: this rank's own
  };

  void release(std::uint64_t number) noexcept;
  void drop_memory(Window& window) noexcept;
  void drop_keys(Window& window) noexcept;

  mutable std::mutex mutex_;
  Channel* channel_;  // null once closed
  Window next_;
  std::uint64_t latest_ = Place::kNone;
  std::map<std::uint64_t, Window> windows_;
  std::vector<std::shared_ptr<void>> kept_;  // after a failure
};

}  // namespace weft::ucx
