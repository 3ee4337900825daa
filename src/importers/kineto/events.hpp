#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "importers/common/collective_name.hpp"
#include "weft/import_report.hpp"

namespace weft::kineto {

/// Times are microseconds with a thousandth behind the point, which doubles hold to about that much.
inline constexpr double kTolerance = 0.002;

enum class EventKind : std::uint8_t {
  call,        ///< a call of an operator, on a thread
  annotation,  ///< a program's note of what it does there
  runtime,     ///< a call of CUDA
  device,      ///< a kernel or a copy on a stream
  sync,        ///< one stream waits for another
};

struct Event {
  std::string name{};
  EventKind kind = EventKind::call;
  std::string category{};
  std::size_t lane = 0;
  double start = 0;  ///< µs
  double end = 0;
  nlohmann::json const* args = nullptr;  ///< an object, or none
  std::optional<NamedCollective> collective{};
};

/// One end of an arrow between events.
struct FlowEnd {
  std::string id{};
  std::size_t lane = 0;
  double at = 0;
  bool begins = false;
};

struct Lane {
  std::string name{};
  bool is_device = false;
};

struct Events {
  std::vector<Event> events{};  ///< by start; an event that holds others comes before them
  std::vector<FlowEnd> flows{};
  std::vector<Lane> lanes{};
};

/// Reads the list "traceEvents", which has to outlive the result.
/// @throws Error{invalid_argument} naming source and event.
[[nodiscard]] Events read_events(nlohmann::json const& list, std::string const& source, ImportReport& report);

}  // namespace weft::kineto
