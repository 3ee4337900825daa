#include "collectives/flight/communicators_begun.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

namespace weft {
namespace {

struct Begun {
  std::mutex mutex;
  std::list<BegunCommunicator> all;
};

/// Never destroyed, for the same reason as the registry of recorders.
Begun& begun() {
  static auto* const instance = new Begun;
  return *instance;
}

}  // namespace

BeginningOfCommunicator::BeginningOfCommunicator(std::string name, int rank, int size) {
  auto& [mutex, all] = begun();
  std::scoped_lock const lock(mutex);
  place_ = all.insert(all.end(), {std::move(name), rank, size, std::chrono::steady_clock::now(), ::getpid()});
}

BeginningOfCommunicator::~BeginningOfCommunicator() {
  auto& [mutex, all] = begun();
  std::scoped_lock const lock(mutex);
  all.erase(place_);
}

std::vector<BegunCommunicator> begun_communicators() {
  auto& [mutex, all] = begun();
  std::scoped_lock const lock(mutex);
  std::vector<BegunCommunicator> mine;
  std::copy_if(all.begin(), all.end(), std::back_inserter(mine), [](auto const& one) { return one.pid == ::getpid(); });
  return mine;
}

}  // namespace weft
