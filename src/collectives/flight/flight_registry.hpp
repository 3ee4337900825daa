#pragma once

#include <memory>
#include <vector>

namespace weft {

class FlightRecorder;

/// A signal and dump_flight_recorders() mean every communicator of the process, whoever made it: so there is one list
/// of them per process, of recorders that it does not keep alive. Any thread.
void register_flight_recorder(std::shared_ptr<FlightRecorder> const& recorder);

/// Those that still live and were made by this process rather than by the one it was forked from.
[[nodiscard]] std::vector<std::shared_ptr<FlightRecorder>> registered_flight_recorders();

}  // namespace weft
