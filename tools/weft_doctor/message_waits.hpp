#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "weft_doctor/dump.hpp"

namespace weft::doctor {

/// A rank waits, or has given up waiting, for the other side of a message.
struct MessageWait {
  Dump const* waiter = nullptr;
  RecordedMessage const* message = nullptr;
  Dump const* peer = nullptr;  ///< null if the peer wrote no dump, or may be any rank
};

/// For each rank, in rank order: the message it has waited for longest among those whose other side has not been
/// started. Receives from any rank come last. Waits shorter than `least_wait` do not count.
[[nodiscard]] std::vector<MessageWait> find_message_waits(std::vector<Dump const*> const& dumps,
                                                          std::chrono::nanoseconds least_wait);

/// Waits that depend on one another: the peer of each is the waiter of the next. The last peer is the rank to look at;
/// in a circle it is the first waiter. A wait for any rank ends a chain.
struct MessageChain {
  std::vector<MessageWait> waits;
  bool circle = false;
};

/// The chain that starts from the first wait. Not empty unless `waits` is.
[[nodiscard]] MessageChain follow(std::vector<MessageWait> const& waits);

/// "rank 1 waits in recv(7 × f32, from rank 0), message 3, since 12.3 s"
[[nodiscard]] std::string describe(MessageWait const& wait);

}  // namespace weft::doctor
