#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "importers/common/process_groups.hpp"
#include "importers/kineto/events.hpp"

namespace weft::kineto {

/// What an event's arguments say of a collective.
struct Message {
  GroupFacts group{};
  std::optional<CollectiveKind> kind{};  ///< "Collective name"
  /// Bytes of one rank: the larger of what goes in and what comes out, or what goes in where only that is given.
  double bytes = 0;
  bool only_input = false;
  /// The type of elements whose size is not known; they count as kWidestElement bytes each. Empty: all sizes are known.
  std::string unknown_type{};

  static constexpr std::int64_t kWidestElement = 8;
};

/// Reads an event's arguments; empty where they say nothing of a collective.
/// @throws Error{invalid_argument} naming source and event where sizes are negative.
[[nodiscard]] std::optional<Message> message_of(Event const& event, std::string const& source);

}  // namespace weft::kineto
