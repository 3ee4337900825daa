// A barrier beside one exchange of flags between the same ranks, the least it can take, and beside MPI's: interleaved
// rounds in one run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/board.hpp"
#include "common/command_line.hpp"
#include "common/limit.hpp"
#include "common/median.hpp"
#include "common/mpi_peer.hpp"
#include "common/results.hpp"
#include "common/weft_calls.hpp"
#include "weft/error.hpp"
#include "weft/weft.hpp"

namespace weft::perf {
namespace {

struct Settings {
  int ranks = 2;
  int rounds = 15;
  int iterations = 2000;
  double at_most = 1.5;
  std::string compare;
  std::string json;
};

/// Seconds of each side, the slowest rank's, a value a round.
struct Rounds {
  std::vector<double> flags, weft, mpi;
};

double best(std::vector<double> const& values) {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double seconds_per_call(Board& board, int iterations, std::function<void()> const& call) {
  board.barrier();
  auto const start = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) call();
  std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
  return board.max(took.count() / iterations);
}

/// Collective.
Rounds measure(Communicator& world, Board& board, Settings const& settings, std::function<void()> const& mpi) {
  int const iterations = board.crowded() ? std::max(1, settings.iterations / 10) : settings.iterations;
  Rounds rounds;
  for (int round = -2; round < settings.rounds; ++round) {  // the first two warm up
    double const flags = flag_exchange(board);
    double const own = seconds_per_call(board, iterations, [&] { world.barrier().wait(); });
    double const peer = mpi ? seconds_per_call(board, iterations, mpi) : 0;
    if (round < 0) continue;
    rounds.flags.push_back(flags);
    rounds.weft.push_back(own);
    if (mpi) rounds.mpi.push_back(peer);
  }
  return rounds;
}

/// Whether the barrier is as fast as asked for: its best round beside the flags' best.
bool tell(Rounds const& rounds, Settings const& settings, int ranks) {
  auto const line = [](char const* name, std::vector<double> const& seconds) {
    if (!seconds.empty()) std::printf("  %-16s %10.3f %10.3f\n", name, best(seconds) * 1e6, median(seconds) * 1e6);
  };
  std::printf("# %d ranks, %d interleaved rounds\n# %-16s %10s %10s\n", ranks, settings.rounds, "", "best us",
              "median us");
  line("flags exchanged", rounds.flags);
  line("weft", rounds.weft);
  line("mpi", rounds.mpi);
  double const ratio = best(rounds.weft) / best(rounds.flags);
  std::printf("barrier over flags: %.2f (by medians %.2f), at most %.2f\n", ratio,
              median(rounds.weft) / median(rounds.flags), settings.at_most);
  if (!rounds.mpi.empty()) {
    std::printf("MPI_Barrier over barrier: %.2f (by medians %.2f)\n", best(rounds.mpi) / best(rounds.weft),
                median(rounds.mpi) / median(rounds.weft));
  }
  return settings.at_most <= 0 || ratio <= settings.at_most;
}

nlohmann::json json_line(Rounds const& rounds, int ranks) {
  nlohmann::json line{{"program", "barrier_perf"},
                      {"ranks", ranks},
                      {"time_us", best(rounds.weft) * 1e6},
                      {"limit_us", best(rounds.flags) * 1e6}};
  if (!rounds.mpi.empty()) line["mpi_us"] = best(rounds.mpi) * 1e6;
  return line;
}

int run(Communicator& world, Settings const& settings, std::function<void()> const& mpi) {
  Board board(meeting_of(world));
  if (!board.has_flags()) {
    throw Error(ErrorCode::invalid_argument,
                "barrier_perf measures beside an exchange of flags, for which all ranks have to be on one host");
  }
  bool const refused = !settings.json.empty() && world.rank() == 0 && !can_append(settings.json);
  if (board.max(refused ? 1 : 0) > 0) {
    if (refused) throw Error(ErrorCode::invalid_argument, "--json: cannot write " + settings.json);
    return 0;  // rank 0 says it
  }
  Rounds const rounds = measure(world, board, settings, mpi);
  if (world.rank() != 0) return 0;
  bool const holds = tell(rounds, settings, world.size());
  if (!settings.json.empty()) append_json_lines(settings.json, {json_line(rounds, world.size())});
  if (!holds) std::fprintf(stderr, "barrier_perf: slower than --at-most allows\n");
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  using namespace weft;
  perf::Settings settings;
  perf::CommandLine line("barrier_perf", "A barrier beside one exchange of flags between the same ranks");
  line.add("-t,--ranks", settings.ranks, "local ranks, unless mpirun or torchrun started them", {1, kMostLocalRanks});
  line.add("--rounds", settings.rounds, "interleaved rounds", {1, 10000});
  line.add("-n,--iterations", settings.iterations, "barriers a round; a tenth with more ranks than processors",
           {1, 1e7});
  line.add("--at-most", settings.at_most, "bar: the barrier's time over the flags'; 0: none");
  line.add("--compare", settings.compare, "'mpi': also MPI_Barrier", {"mpi"});
  line.add("--json", settings.json, "file to append one JSON line to");
  if (auto const code = line.parse(argc, argv)) return *code;
  try {
    std::unique_ptr<perf::MpiPeer> peer;
    if (!settings.compare.empty()) peer = std::make_unique<perf::MpiPeer>();
    LaunchOptions how;
    how.ranks = settings.ranks;
    return launch(how, [&](Communicator& world) {
      return perf::run(world, settings, peer ? perf::MpiPeer::barrier() : std::function<void()>());
    });
  } catch (Error const& error) {
    report_failure(std::string("barrier_perf: ") + error.what());
    return error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported ? 2 : 1;
  }
}
