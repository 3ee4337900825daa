#pragma once

#include <chrono>
#include <list>
#include <string>
#include <vector>

namespace weft {

/// A communicator that this process is making, which takes until every rank has come.
struct BegunCommunicator {
  std::string name;  ///< what the application calls it; may be empty
  int rank = 0;
  int size = 1;
  std::chrono::steady_clock::time_point since{};
  long pid = 0;
};

/// While one lives, dumps of flight recorders tell of a communicator that is being made. Any thread.
class BeginningOfCommunicator {
 public:
  BeginningOfCommunicator(std::string name, int rank, int size);
  BeginningOfCommunicator(BeginningOfCommunicator const&) = delete;
  BeginningOfCommunicator& operator=(BeginningOfCommunicator const&) = delete;
  ~BeginningOfCommunicator();

 private:
  std::list<BegunCommunicator>::iterator place_;
};

/// Those of this process, rather than of the one that it was forked from.
[[nodiscard]] std::vector<BegunCommunicator> begun_communicators();

}  // namespace weft
