#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/sim/topology.hpp"
#include "transport/sim/virtual_time.hpp"

namespace weft::sim {

/// A message from the moment one side begins it until both sides have waited for it.
struct Message {
  int from = 0;
  int to = 0;
  std::uint64_t number = 0;  ///< among the messages from `from` to `to`
  std::size_t sent_bytes = 0;
  std::size_t recv_bytes = 0;
  std::byte const* source = nullptr;
  std::byte* target = nullptr;
  bool has_sender = false;    ///< the send has begun
  bool has_receiver = false;  ///< the receive has begun
  bool carries_data = true;
  bool sender_done = false;  ///< the sender has waited for it
  bool receiver_done = false;
  bool delivered = false;        ///< the receiver has its bytes, or was lost
  bool lost = false;             ///< one of its ranks was lost
  std::vector<std::byte> bytes;  ///< a copy, between the end of the send and the end of the receive
  Network::Route route;          ///< valid once it is on its way
  std::uint32_t next_link = 0;   ///< the next link of the route that it passes
  bool on_its_way = false;
  Time leaves = kNever;              ///< when the sender's buffer is free; known once it has begun to leave
  Time last_byte{};                  ///< when the last byte leaves the busiest link so far
  Time arrives = kNever;             ///< known once it has passed all links
  std::uint32_t sends = kNobody;     ///< the strand that waits for the send
  std::uint32_t receives = kNobody;  ///< the strand that waits for the receive

  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
};

using MessageId = std::uint32_t;

/// The key by which two ranks' messages match: one direction between them on one channel.
struct Path {
  static constexpr unsigned kRankBits = 20;

  std::uint32_t channel = 0;  ///< below 2^24
  int from = 0;
  int to = 0;

  [[nodiscard]] std::uint64_t key() const noexcept {
    return (std::uint64_t{channel} << (2 * kRankBits)) | (static_cast<std::uint64_t>(from) << kRankBits) |
           static_cast<std::uint64_t>(to);
  }
};

/// All messages that both sides are not yet done with. Sends and receives of a path match in their order.
class Messages {
 public:
  /// The message of the next send (or receive) on a path: one that the other side has begun, or else a new one.
  [[nodiscard]] MessageId begin_send(Path const& path);
  [[nodiscard]] MessageId begin_recv(Path const& path);
  [[nodiscard]] Message& operator[](MessageId id) noexcept { return all_[id]; }
  [[nodiscard]] Message const& operator[](MessageId id) const noexcept { return all_[id]; }
  /// Ends a message that both sides are done with.
  void release(MessageId id);
  /// Calls `visit(id, message)` for every message that is not released.
  template <typename Visit>
  void for_each(Visit visit) {
    for (MessageId id = 0; id < all_.size(); ++id) {
      if (live_[id]) visit(id, all_[id]);
    }
  }

 private:
  /// The state of a path. `waiting`: messages that only one side has begun, oldest first.
  struct Pair {
    std::uint64_t sends = 0;
    std::uint64_t recvs = 0;
    std::deque<MessageId> waiting;
  };

  [[nodiscard]] MessageId make(Path const& path, std::uint64_t number);
  [[nodiscard]] Pair& pair(Path const& path) { return pairs_[path.key()]; }

  std::deque<Message> all_;
  std::vector<char> live_;
  std::vector<MessageId> free_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
};

}  // namespace weft::sim
