#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/sanitizers.hpp"
#include "weft/communicator.hpp"

namespace weft::test {

/// The longest time that a run of ranks may take before it is ended and reported; well below the per-test watchdog
/// (harness/main.cpp).
inline constexpr std::chrono::seconds kRankLimit{unless_sanitized(60, 240)};

/// A failure that was noticed ends within this time, even on a busy machine; one that was not noticed lasts until a
/// time limit of minutes ends it.
inline constexpr std::chrono::seconds kNoticed{30};

/// The time limit of calls that are meant to time out: long enough that even on a machine that stalls for seconds all
/// ranks get to where they wait.
inline constexpr std::chrono::seconds kImpatience{4};

/// Runs `body` on `ranks` threads of this process, one communicator each, and joins them. `body` may use EXPECT_*.
/// Rethrows the first exception that is not only a consequence of another (peer_lost, aborted), or else the first one.
void run_thread_ranks(int ranks, std::function<void(Communicator&)> const& body,
                      CommunicatorOptions const& options = {});

/// As above, with the bare bootstrap instead of a communicator.
void run_thread_bootstraps(int ranks, std::function<void(std::shared_ptr<Bootstrap>)> const& body,
                           Config const& config = {});

/// How a forked rank ended.
struct RankExit {
  int code = -1;                        ///< exit code, or -1 when a signal ended it
  int signal = 0;                       ///< the signal, or 0
  bool timed_out = false;               ///< killed by the harness after its limit
  std::string output;                   ///< what it wrote to stderr and stdout
  std::chrono::milliseconds elapsed{};  ///< from the last fork to its end (as seen by the parent, ±5 ms)
};

/// Exit code of a rank whose body had a failed EXPECT_* or ASSERT_*.
inline constexpr int kExpectationFailed = 90;
/// Exit code of a rank whose body threw; its output ends with `rank R threw CODE: WHAT`.
inline constexpr int kThrew = 91;

/// Forks `ranks` processes, runs `body` in each with a communicator, reaps all of them and returns how they ended.
/// A rank still running after `limit` is killed. Call it before this test starts threads.
[[nodiscard]] std::vector<RankExit> run_forked_ranks(int ranks, std::function<int(Communicator&)> const& body,
                                                     CommunicatorOptions const& options = {},
                                                     std::chrono::milliseconds limit = kRankLimit);

/// As above, with the bare bootstrap instead of a communicator.
[[nodiscard]] std::vector<RankExit> run_forked_bootstraps(int ranks,
                                                          std::function<int(std::shared_ptr<Bootstrap>)> const& body,
                                                          Config const& config = {},
                                                          std::chrono::milliseconds limit = kRankLimit);

/// As above, with only the rank's number.
[[nodiscard]] std::vector<RankExit> run_forked(int ranks, std::function<int(int rank)> const& body,
                                               std::chrono::milliseconds limit = kRankLimit);

/// Fails the calling test for every rank that did not exit with code 0, and shows the rank's output.
void expect_all_succeeded(std::vector<RankExit> const& exits);

/// Fails the calling test if this process still has a child that was not reaped.
void expect_no_children();

}  // namespace weft::test
