#include "weft/launch.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "core/bootstrap_fork.hpp"
#include "core/bootstrap_mpi.hpp"
#include "core/failure_lines.hpp"
#include "core/launcher.hpp"
#include "core/log.hpp"
#include "core/rank_processes.hpp"
#include "core/topology.hpp"
#include "weft/error.hpp"
#include "weft/flight_recorder.hpp"

namespace weft {
namespace {

using Body = std::function<int(Communicator&)>;

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;
constexpr std::chrono::seconds kForkGrace{5};
constexpr std::chrono::seconds kLauncherGrace{1};

/// Errors in the options, the configuration or a call are usage errors, which the user can put right; all others are
/// failures.
int exit_code_of(Error const& error) noexcept {
  bool const usage = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported;
  return usage ? kBadUsage : kFailed;
}

/// Whether a rank that fails with `message` should report it: false where another rank has reported the same.
using Speaks = std::function<bool(std::string const& message)>;

/// Runs `work` for a rank; what it throws becomes a line on stderr and a result.
RankResult guarded(int rank, Speaks const& speaks, std::function<int()> const& work) {
  auto const failed = [&](int code, std::string const& message, RankReport report = RankReport::cause) {
    if (speaks(message)) write_failure("weft: " + failure_line(rank, message));
    return RankResult{code, report};
  };
  try {
    int const code = work();
    if (code == 0) return {};
    // The system keeps the low 8 bits of an exit code; a failure must not turn into success.
    return failed((code & 0xff) != 0 ? code : kFailed, fmt::format("returned {}", code));
  } catch (Error const& error) {
    bool const consequence = error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::aborted;
    return failed(exit_code_of(error), error.what(), consequence ? RankReport::consequence : RankReport::cause);
  } catch (std::bad_alloc const&) {
    return failed(kFailed, "out of memory");
  } catch (std::exception const& error) {
    return failed(kFailed, error.what());
  } catch (...) {
    return failed(kFailed, "threw something that is no std::exception");
  }
}

RankResult run_rank(std::shared_ptr<Bootstrap> const& bootstrap, CommunicatorOptions const& options,
                    Speaks const& speaks, Body const& body) {
  return guarded(bootstrap->rank(), speaks, [&] {
    FlightDumpSignal const dump_on_signal;
    Communicator communicator = Communicator::create(bootstrap, options);
    return body(communicator);
  });
}

/// Runs this process's rank: one of a job that was started by somebody else, or the only one.
int run_here(std::shared_ptr<Bootstrap> const& bootstrap, LaunchOptions const& options, Body const& body) {
  if (options.ranks != 1 && options.ranks != bootstrap->size()) {
    if (bootstrap->rank() == 0) {
      write_failure(fmt::format("weft: {} ranks were asked for, but {} started {}: ask for 1 or for that number",
                                options.ranks, bootstrap->name(), bootstrap->size()));
    }
    return kBadUsage;
  }
  std::optional<FailureClaim> claim;  // held until this process ends
  auto const speaks = [&](std::string const& message) {
    return bootstrap->size() == 1 || claim.emplace(message).granted();
  };
  RankResult const result = run_rank(bootstrap, options.communicator, speaks, body);
  if (result.code == 0 || bootstrap->size() == 1) return result.code;
  std::this_thread::sleep_for(kLauncherGrace);  // the others report what they saw before the job ends
  if (bootstrap->name() == "mpi") abort_mpi_job(result.code);
  return result.code;
}

void bind_rank(int rank, int ranks) noexcept {
  try {
    bind_this_thread(share_of_cpus(discover_topology().cpus, rank, ranks));
  } catch (std::exception const& error) {  // unbound is slower, but right
    log(LogLevel::warn, fmt::format("rank {} stays unbound: {}", rank, error.what()));
  }
}

int run_forked(LaunchOptions const& options, Body const& body) {
  std::vector<std::shared_ptr<Bootstrap>> bootstraps = fork_bootstraps(options.ranks, *options.communicator.config);
  RankProcesses processes(options.ranks);
  auto const child = [&](int rank) {
    std::shared_ptr<Bootstrap> const mine = bootstraps[static_cast<std::size_t>(rank)];
    bootstraps.clear();  // so that `mine` is the last reference, and its end is seen by the peers
    if (options.communicator.config->bind) bind_rank(rank, options.ranks);
    auto const speaks = [&](std::string const& message) { return processes.first_to_say(failure_key(message)); };
    return run_rank(mine, options.communicator, speaks, body);
  };
  processes.start(child, [&](int rank, pid_t pid) { note_forked(*bootstraps[static_cast<std::size_t>(rank)], pid); });
  return processes.wait(kForkGrace);
}

}  // namespace

void report_failure(std::string const& text) {
  if (!started_by_launcher()) return write_failure(text);
  FailureClaim const claim(text);
  if (!claim.granted()) return;
  write_failure(text);
  std::this_thread::sleep_for(kLauncherGrace);
}

int launch(LaunchOptions const& asked, Body const& body) {
  try {
    LaunchOptions options = asked;
    if (!options.communicator.config) options.communicator.config = Config::from_environment();
    options.communicator.config->check();
    if (options.ranks < 1 || options.ranks > kMostLocalRanks) {
      report_failure(fmt::format("weft: {} ranks were asked for: expected 1 to {}", options.ranks, kMostLocalRanks));
      return kBadUsage;
    }
    if (!body) throw Error(ErrorCode::invalid_argument, "launch: body is null");
    set_log_level(*parse_log_level(options.communicator.config->log_level));
    std::shared_ptr<Bootstrap> const bootstrap = bootstrap_from_environment(*options.communicator.config);
    if (bootstrap->name() != "single" || options.ranks == 1) return run_here(bootstrap, options, body);
    return run_forked(options, body);
  } catch (Error const& error) {
    report_failure(fmt::format("weft: {}", error.what()));
    return exit_code_of(error);
  } catch (std::exception const& error) {
    report_failure(fmt::format("weft: {}", error.what()));
    return kFailed;
  }
}

}  // namespace weft
