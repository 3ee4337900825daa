#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/messenger.hpp"

namespace weft::test {

/// What rank `from` sends as its `number`th message.
[[nodiscard]] std::vector<std::uint8_t> message_content(int from, int number, std::size_t size);

// Each is called by all ranks, over whatever back end, and leaves the communicator as it was. They throw
// std::runtime_error at the first difference.

/// Random messages between all ranks and to oneself, waited for in any order; the k-th receive of a rank and tag gets
/// their k-th message.
void exchange_tagged(Communicator& world, unsigned seed);
/// Rank 0 receives from any; it gets every message once, and those of a rank in order.
void gather_from_any(Communicator& world, unsigned seed);
/// Long messages between all ranks at once.
void cross_long_messages(Communicator& world);
/// Nobody waits for a long send while its receiver does.
void leave_in_the_background(Communicator& world);
/// A Messenger whose receives from anybody nothing came for leaves the communicator's other messages alone.
void take_over_from_another(Communicator& world);
/// Of two ranks and more that rank 0 received from any of: what one sends it afterwards is its next Messenger's.
void leave_later_messages_to_the_next(Communicator& world);
/// Messages of another size fail their receive, and the next come through.
void drop_what_does_not_fit(Communicator& world);

}  // namespace weft::test
