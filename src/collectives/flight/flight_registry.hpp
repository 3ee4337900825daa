#pragma once

#include <memory>
#include <vector>

namespace weft {

class FlightRecorder;

/// Adds a recorder to the process's one list, in which the signal and dump_flight_recorders() find the recorders of all
/// communicators, whoever made them. The list does not keep recorders alive. Any thread.
void register_flight_recorder(std::shared_ptr<FlightRecorder> const& recorder);

/// The recorders that are still alive and were made by this process, not by the one that it was forked from.
[[nodiscard]] std::vector<std::shared_ptr<FlightRecorder>> registered_flight_recorders();

}  // namespace weft
