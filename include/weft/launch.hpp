#pragma once

#include <functional>

#include "weft/communicator.hpp"

namespace weft {

/// How launch() starts ranks.
struct LaunchOptions {
  /// Local ranks to fork, 1 to kMostLocalRanks. Under mpirun or torchrun, which start the ranks: 1, or their number.
  int ranks = 1;
  CommunicatorOptions communicator{};
};

/// Most ranks launch() forks.
inline constexpr int kMostLocalRanks = 64;

/// Runs `body` once per rank with a communicator of all of them, and returns the process's exit code.
///
/// Under mpirun or torchrun this process is one rank of theirs. Otherwise `ranks` local ranks are forked, each bound to
/// its share of the cores (config.bind), and each dies with its parent; the caller becomes their waiting parent, so
/// call it before starting threads. A single rank is not forked: it runs in the calling process.
///
/// A body that throws, or returns non-zero, makes the whole launch return non-zero after one line on stderr
/// (`weft: rank 1: …`). The other ranks' pending calls fail within a second, and ranks that still run five seconds
/// later are killed. When several ranks of a host say the same, the first of them says it for all. Ctrl-C, SIGTERM and
/// SIGUSR2 (FlightDumpSignal) reach every rank.
///
/// The result is the exit code of the rank that failed first: what its body returned; 2 for usage and configuration
/// (wrong options, a bad WEFT_ value, Error{invalid_argument|unsupported}); 1 for any other failure; 128 + the signal
/// for one that a signal ended, as shells count.
///
/// A forked rank ends with _exit() once its body has returned and its output is flushed: destructors of statics and
/// atexit handlers run in the calling process only. Under mpirun a failed rank ends the job with MPI_Abort one second
/// after its line, time for the others to report what they saw (under torchrun it just ends then); MPI_Finalize is only
/// called when this rank succeeded and launch() initialised MPI.
int launch(LaunchOptions const& options, std::function<int(Communicator&)> const& body);

/// Writes `text` to stderr as launch() writes its own lines, for what a program finds wrong before it launches: bad
/// options, a missing file. Where mpirun or torchrun started several ranks on this host that all say the same, one of
/// them does, and then stays for a second so that the others notice.
void report_failure(std::string const& text);

}  // namespace weft
