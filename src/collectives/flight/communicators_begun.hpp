#pragma once

#include <chrono>
#include <list>
#include <string>
#include <vector>

namespace weft {

/// A communicator that this process is making; that lasts until every rank has come.
struct BegunCommunicator {
  std::string name;  ///< what the application calls it; may be empty
  int rank = 0;
  int size = 1;
  std::chrono::steady_clock::time_point since{};
  long pid = 0;
};

/// While one lives, dumps of flight recorders say that a communicator is being made, so that a job that hangs there can
/// be explained. Any thread.
class BeginningOfCommunicator {
 public:
  BeginningOfCommunicator(std::string name, int rank, int size);
  BeginningOfCommunicator(BeginningOfCommunicator const&) = delete;
  BeginningOfCommunicator& operator=(BeginningOfCommunicator const&) = delete;
  ~BeginningOfCommunicator();

 private:
  std::list<BegunCommunicator>::iterator place_;
};

/// The communicators that this process is making, without those of the process that it was forked from.
[[nodiscard]] std::vector<BegunCommunicator> begun_communicators();

}  // namespace weft
