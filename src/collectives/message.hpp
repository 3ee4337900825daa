#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/data_type.hpp"

namespace weft {

/// One side of a point-to-point message, a send or a receive, checked and ready to run. Messages from one rank to
/// another match in the order in which both sides issued them.
struct Message {
  enum class Direction : std::uint8_t { send, receive };

  Direction direction = Direction::send;
  DataType dtype = DataType::u8;
  int peer = 0;
  void* data = nullptr;  ///< a send only reads it
  std::size_t bytes = 0;
  bool up_to = false;  ///< a receive: the sender decides how many bytes come, at most `bytes`
  /// Whether it is a Messenger's message, which has a tag; for reports. A receive from any rank gets its peer and its
  /// number once it is through.
  bool has_tag = false;
  int tag = 0;
  std::uint64_t number = 0;  ///< among this rank's messages to (or from) that peer with that tag, from 0
};

}  // namespace weft
