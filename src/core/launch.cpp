#include "weft/launch.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <thread>

#include "core/bootstrap_fork.hpp"
#include "core/bootstrap_mpi.hpp"
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
constexpr std::chrono::seconds kMpiGrace{1};

/// What is wrong with the options, the configuration or a call is the user's to put right; the rest went wrong.
int exit_code_of(Error const& error) noexcept {
  bool const usage = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported;
  return usage ? kBadUsage : kFailed;
}

/// One line, written at once so that ranks' lines do not mix.
void report(std::string const& line) {
  std::cout.flush();
  std::fflush(stdout);
  std::string const text = "weft: " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Runs `work` for a rank; what it throws becomes a line on stderr and a result.
RankResult guarded(int rank, std::function<int()> const& work) {
  try {
    int const code = work();
    if (code == 0) return {};
    report(fmt::format("rank {}: returned {}", rank, code));
    // The system keeps the low 8 bits of an exit code; a failure must not turn into success.
    return {(code & 0xff) != 0 ? code : kFailed, RankReport::cause};
  } catch (Error const& error) {
    report(fmt::format("rank {}: {}", rank, error.what()));
    bool const consequence = error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::aborted;
    return {exit_code_of(error), consequence ? RankReport::consequence : RankReport::cause};
  } catch (std::bad_alloc const&) {
    report(fmt::format("rank {}: out of memory", rank));
  } catch (std::exception const& error) {
    report(fmt::format("rank {}: {}", rank, error.what()));
  } catch (...) {
    report(fmt::format("rank {}: threw something that is no std::exception", rank));
  }
  return {kFailed, RankReport::cause};
}

RankResult run_rank(std::shared_ptr<Bootstrap> const& bootstrap, CommunicatorOptions const& options, Body const& body) {
  return guarded(bootstrap->rank(), [&] {
    FlightDumpSignal const dump_on_signal;
    Communicator communicator = Communicator::create(bootstrap, options);
    return body(communicator);
  });
}

/// This process is one rank of a job that somebody else started, or the only one.
int run_here(std::shared_ptr<Bootstrap> const& bootstrap, LaunchOptions const& options, Body const& body) {
  if (options.ranks != 1 && options.ranks != bootstrap->size()) {
    if (bootstrap->rank() == 0) {
      report(fmt::format("{} ranks were asked for, but {} started {}: ask for 1 or for that number", options.ranks,
                         bootstrap->name(), bootstrap->size()));
    }
    return kBadUsage;
  }
  RankResult const result = run_rank(bootstrap, options.communicator, body);
  if (result.code != 0 && bootstrap->name() == "mpi" && bootstrap->size() > 1) {
    std::this_thread::sleep_for(kMpiGrace);  // the others report what they saw before the job ends
    abort_mpi_job(result.code);
  }
  return result.code;
}

void bind_rank(int rank, int ranks) noexcept {
  try {
    bind_this_thread(share_of_cpus(discover_topology().cpus, rank, ranks));
  } catch (std::exception const& error) {  // slower, but right
    log(LogLevel::warn, fmt::format("rank {} stays unbound: {}", rank, error.what()));
  }
}

int run_forked(LaunchOptions const& options, Body const& body) {
  std::vector<std::shared_ptr<Bootstrap>> bootstraps = fork_bootstraps(options.ranks, *options.communicator.config);
  RankProcesses processes(options.ranks);
  auto const child = [&](int rank) {
    std::shared_ptr<Bootstrap> const mine = bootstraps[static_cast<std::size_t>(rank)];
    bootstraps.clear();  // so that `mine` is the last hold on it and its end is seen by the peers
    if (options.communicator.config->bind) bind_rank(rank, options.ranks);
    return run_rank(mine, options.communicator, body);
  };
  processes.start(child, [&](int rank, pid_t pid) { note_forked(*bootstraps[static_cast<std::size_t>(rank)], pid); });
  return processes.wait(kForkGrace);
}

}  // namespace

int launch(LaunchOptions const& asked, Body const& body) {
  try {
    LaunchOptions options = asked;
    if (!options.communicator.config) options.communicator.config = Config::from_environment();
    options.communicator.config->check();
    if (options.ranks < 1 || options.ranks > kMostLocalRanks) {
      report(fmt::format("{} ranks were asked for: expected 1 to {}", options.ranks, kMostLocalRanks));
      return kBadUsage;
    }
    set_log_level(*parse_log_level(options.communicator.config->log_level));
    std::shared_ptr<Bootstrap> const bootstrap = bootstrap_from_environment(*options.communicator.config);
    if (bootstrap->name() != "single" || options.ranks == 1) return run_here(bootstrap, options, body);
    return run_forked(options, body);
  } catch (Error const& error) {
    report(error.what());
    return exit_code_of(error);
  } catch (std::exception const& error) {
    report(error.what());
    return kFailed;
  }
}

}  // namespace weft
