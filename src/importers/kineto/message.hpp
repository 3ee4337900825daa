#pragma once

#include <optional>
#include <string>

#include "importers/common/process_groups.hpp"
#include "importers/kineto/events.hpp"

namespace weft::kineto {

/// What an event's arguments say of a collective.
struct Message {
  GroupFacts group{};
  std::optional<CollectiveKind> kind{};  ///< "Collective name"
  /// Of one rank: the larger of what goes in and comes out, in bytes; of what is given alone where only that is there.
  double bytes = 0;
  bool only_input = false;
};

/// None where they say nothing.
/// @throws Error{invalid_argument} naming source and event where sizes are negative.
[[nodiscard]] std::optional<Message> message_of(Event const& event, std::string const& source, ImportReport& report);

}  // namespace weft::kineto
