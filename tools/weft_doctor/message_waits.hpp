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
  Dump const* peer = nullptr;  ///< null: it wrote no dump
};

/// Of each rank the message it has waited for longest whose other side has not been started, by rank. Shorter waits
/// than `least_wait` do not count.
[[nodiscard]] std::vector<MessageWait> find_message_waits(std::vector<Dump const*> const& dumps,
                                                          std::chrono::nanoseconds least_wait);

/// Waits that hang on one another: each one's peer is the next one's waiter. The last peer is the rank to look at; in a
/// circle it is the first waiter.
struct MessageChain {
  std::vector<MessageWait> waits;
  bool circle = false;
};

/// The chain that the first wait belongs to. Never empty for some waits.
[[nodiscard]] MessageChain follow(std::vector<MessageWait> const& waits);

/// "rank 1 waits in recv(7 × f32, from rank 0), message 3, since 12.3 s"
[[nodiscard]] std::string describe(MessageWait const& wait);

}  // namespace weft::doctor
