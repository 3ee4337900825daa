#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/data_type.hpp"

namespace weft {

/// One direction of point-to-point traffic, checked and ready to move. Messages from one rank to another match in the
/// order in which both sides issued them.
struct Message {
  enum class Direction : std::uint8_t { send, receive };

  Direction direction = Direction::send;
  DataType dtype = DataType::u8;
  int peer = 0;
  void* data = nullptr;  ///< only read when sending
  std::size_t bytes = 0;
  bool up_to = false;        ///< receiving: the sender decides how many bytes come, `bytes` at most
  std::uint64_t number = 0;  ///< among this rank's messages to (from) that peer, from 0
};

}  // namespace weft
