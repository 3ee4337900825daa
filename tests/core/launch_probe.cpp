#include <weft/weft.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

/// Started by launch_mpirun_test under mpirun: `launch_probe MODE [RANKS]`.
int main(int argc, char** argv) {
  std::string const mode = argc > 1 ? argv[1] : "succeed";
  weft::LaunchOptions options;
  options.ranks = argc > 2 ? std::stoi(argv[2]) : 1;
  return weft::launch(options, [&](weft::Communicator& world) {
    std::vector<float> values(1000, static_cast<float>(world.rank() + 1));
    world.all_reduce(std::span<float const>(values), std::span<float>(values), weft::ReduceOp::sum);
    std::printf("rank %d of %d: %g\n", world.rank(), world.size(), static_cast<double>(values[999]));
    bool const chosen = world.rank() == 1;
    if (mode == "all") throw std::runtime_error("thrown by all on purpose");
    if (chosen && mode == "throw") throw std::runtime_error("thrown on purpose");
    if (chosen && mode == "return") return 3;
    if (chosen && mode == "kill") kill(getpid(), SIGKILL);
    world.barrier();
    return 0;
  });
}
