#pragma once

#include <functional>

#include "weft/communicator.hpp"

namespace weft {

/// How launch() starts ranks.
struct LaunchOptions {
  int ranks = 1;                  ///< local ranks to fork when the process was not started by mpirun or torchrun
  CommunicatorOptions communicator{};
};

/// Runs `body` once per rank with a communicator of all of them, and returns the process's exit code.
///
/// Under mpirun or torchrun this process is one rank of theirs (`ranks` must be 1 or equal to theirs). Otherwise `ranks`
/// local ranks are forked, each bound to its share of the cores, and each dies with its parent; the caller becomes their
/// waiting parent, so call it before starting threads. A body that throws, or returns non-zero, makes the whole launch
/// return non-zero after one line on stderr (`weft: rank 1: …`); the other ranks' pending calls fail within a second.
/// Ctrl-C reaches every rank.
int launch(LaunchOptions const& options, std::function<int(Communicator&)> const& body);

}  // namespace weft
