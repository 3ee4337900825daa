#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call.hpp"
#include "transport/ucx/channel.hpp"

namespace weft::ucx {

/// Brings all ranks together at the beginning of a call, in ⌈log2 n⌉ steps: in step k each rank tells the rank 2^k
/// before it all that it has heard. Announcements can carry small buffers. One thread at a time.
class Announcer {
 public:
  /// Limit for the bytes of all blocks together. Blocks of up to most_combined_at_once() bytes each also fit.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;

  explicit Announcer(Channel& channel) : channel_(channel) {}

  /// Sends the contract only. Like exchange() and broadcast() it throws Error{mismatch} on every rank if calls differ;
  /// the communicator stays usable.
  void announce(Purpose const& purpose, Call const& call);
  /// Every rank gets a block of `bytes` bytes from each rank.
  void exchange(Purpose const& purpose, Call const& call, void const* mine, std::size_t bytes);
  /// Every rank gets a block from the call's root; `block` only matters there.
  void broadcast(Purpose const& purpose, Call const& call, void const* block, std::size_t bytes);

  /// What `rank` sent in the last exchange(); after a broadcast(), what the root sent. Valid until the next call.
  [[nodiscard]] std::byte const* block_of(int rank) const noexcept;

 private:
  /// Kept small: over a slow link even 16 bytes more show in calls of 1 KiB.
  struct Header {
    PackedContract contract{Contract{}};  ///< the sender's
    std::int32_t rank = 0;
    std::int32_t other = kNone;  ///< a rank whose call differs from the sender's; then its contract follows, no blocks
  };
  static constexpr std::int32_t kNone = -1;

  /// How many of the blocks of ranks [first, first + count) a message has.
  [[nodiscard]] std::size_t blocks_in(int first, int count) const noexcept;
  void run(Purpose const& purpose, Call const& call, void const* mine);
  void step(Purpose const& purpose, int have);
  void swap(Purpose const& purpose, int distance, std::size_t gives);
  void note(Header const& theirs, PackedContract const& differing) noexcept;

  Channel& channel_;
  Header header_;
  PackedContract differing_{Contract{}};  // of header_.other
  int root_ = kNone;                      // the rank whose block is carried; kNone: every rank's is
  std::size_t bytes_ = 0;                 // of a block
  std::size_t capacity_ = 0;              // of a message
  std::vector<std::byte> outgoing_;       // a header, then the ranks' blocks from this rank's on, wrapping around
  std::vector<std::byte> incoming_;
};

}  // namespace weft::ucx
