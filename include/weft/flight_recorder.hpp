#pragma once

#include <memory>
#include <string>
#include <vector>

namespace weft {

/// Every communicator remembers its last calls (WEFT_FLIGHT_RECORDER). They are written down, one JSON file per process
/// and communicator, when a call fails because of its peers, and on request: for `weft-doctor`, which names the rank
/// that a hanging job waits for. See docs/debugging-hangs.md.

/// Writes the last calls of every communicator of this process, to WEFT_FLIGHT_DIR or else the current directory, and
/// returns the paths. Any thread, also while calls hang. @throws Error{system} when a file cannot be written, once the
/// others are.
std::vector<std::string> dump_flight_recorders();

/// While one lives, SIGUSR2 makes this process do that; launch() has one while it runs ranks. A handler that was there
/// before is called too, and is put back at the end. After fork() the child needs one of its own.
class FlightDumpSignal {
 public:
  /// @throws Error{system}
  FlightDumpSignal();
  FlightDumpSignal(FlightDumpSignal const&) = delete;
  FlightDumpSignal& operator=(FlightDumpSignal const&) = delete;
  ~FlightDumpSignal();

 private:
  class Listener;
  std::shared_ptr<Listener> listener_;
};

}  // namespace weft
