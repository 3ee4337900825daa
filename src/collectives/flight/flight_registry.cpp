#include "collectives/flight/flight_registry.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "collectives/flight/flight_recorder.hpp"

namespace weft {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<FlightRecorder>> recorders;
};

/// Never destroyed: the thread that the signal wakes may use it while the process ends.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

void register_flight_recorder(std::shared_ptr<FlightRecorder> const& recorder) {
  auto& [mutex, recorders] = registry();
  std::scoped_lock const lock(mutex);
  recorders.erase(std::remove_if(recorders.begin(), recorders.end(), [](auto const& one) { return one.expired(); }),
                  recorders.end());
  recorders.push_back(recorder);
}

std::vector<std::shared_ptr<FlightRecorder>> registered_flight_recorders() {
  auto& [mutex, recorders] = registry();
  std::scoped_lock const lock(mutex);
  std::vector<std::shared_ptr<FlightRecorder>> mine;
  for (auto const& one : recorders) {
    if (auto recorder = one.lock(); recorder && recorder->identity().pid == ::getpid()) mine.push_back(recorder);
  }
  return mine;
}

}  // namespace weft
