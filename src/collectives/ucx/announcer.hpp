#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call.hpp"
#include "transport/ucx/channel.hpp"

namespace weft::ucx {

/// Brings all ranks together at the beginning of a call, in ⌈log2 n⌉ steps: in step k each rank tells the one 2^k
/// before it all that it has heard. Small buffers ride along. One thread at a time.
class Announcer {
 public:
  /// Of all blocks together; or each as large as most_combined_at_once().
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;

  explicit Announcer(Channel& channel) : channel_(channel) {}

  /// Nothing but the contract. All of them throw Error{mismatch} on every rank where calls differ; the communicator
  /// goes on.
  void announce(Purpose const& purpose, Call const& call);
  /// Every rank gets a block of `bytes` bytes from each.
  void exchange(Purpose const& purpose, Call const& call, void const* mine, std::size_t bytes);
  /// Every rank gets a block from the call's root; `block` only matters there.
  void broadcast(Purpose const& purpose, Call const& call, void const* block, std::size_t bytes);

  /// What `rank` sent in the last exchange(); in the last broadcast() what the root did. Until the next call.
  [[nodiscard]] std::byte const* block_of(int rank) const noexcept;

 private:
  /// Small, as even 16 bytes more show in calls of 1 KiB over a slow link.
  struct Header {
    PackedContract contract{Contract{}};  ///< the sender's
    std::int32_t rank = 0;
    std::int32_t other = kNone;  ///< one whose call differs from the sender's; its contract follows then, no blocks
  };
  static constexpr std::int32_t kNone = -1;

  /// Blocks that a message has, of those of ranks [first, first + count).
  [[nodiscard]] std::size_t blocks_in(int first, int count) const noexcept;
  void run(Purpose const& purpose, Call const& call, void const* mine);
  void step(Purpose const& purpose, int have);
  void swap(Purpose const& purpose, int distance, std::size_t gives);
  void note(Header const& theirs, PackedContract const& differing) noexcept;

  Channel& channel_;
  Header header_;
  PackedContract differing_{Contract{}};  // of header_.other
  int root_ = kNone;                      // whose block rides along; kNone: everybody's
  std::size_t bytes_ = 0;                 // of a block
  std::size_t capacity_ = 0;              // of a message
  std::vector<std::byte> outgoing_;       // a header, and blocks from this rank's on, around
  std::vector<std::byte> incoming_;
};

}  // namespace weft::ucx
