#include "common/program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "common/host_sweep.hpp"
#include "tool_output/tool_output.hpp"
#include "weft/error.hpp"
#include "weft/launch.hpp"
#if WEFT_WITH_NCCL
#include "cuda/gpu.hpp"
#endif

namespace weft::perf {
namespace {

/// The options of a rank that mpirun or torchrun started. Here -t and -g started no ranks, so the reported values must
/// multiply to 1, the one rank of each process: readers of nccl-tests' table count ranks this way.
Options started_elsewhere(Options options, int ranks) {
  if (options.ranks() == 1) return options;
  options.threads = options.gpus = 1;
  options.notes.push_back(
      fmt::format("-t, -g: start nothing here; the {} processes of mpirun or torchrun are the ranks", ranks));
  return options;
}

int run_rank(Case const& tested, Options const& options, MpiPeer const* peer, Communicator& communicator) {
#if WEFT_WITH_NCCL
  if (options.device == DeviceType::cuda) {
    auto const gpu = open_gpu(options, *communicator.options().config, communicator.rank(), communicator.size());
    return DeviceSweep(tested, options, gpu, communicator).run();
  }
#endif
  return HostSweep(tested, options, peer, communicator).run();
}

}  // namespace

int run_program(Op what, int argc, char const* const* argv) {
  auto const tested = make_case(what);
  auto const parsed = parse_options(*tested, argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  auto const& options = parsed.options;
  try {
    std::unique_ptr<MpiPeer> peer;
    if (options.compare_mpi) peer = std::make_unique<MpiPeer>();
    LaunchOptions launch_options;
    launch_options.ranks = options.ranks();
    launch_options.communicator.config = Config::from_environment();
    if (options.timeout) launch_options.communicator.config->timeout = *options.timeout;
    launch_options.communicator.emulated_link = options.link;
    auto const caller = getpid();
    return launch(launch_options, [&](Communicator& communicator) {
      bool const forked = getpid() != caller;  // launch() forks only if no launcher has started this process
      auto const code = run_rank(*tested, forked ? options : started_elsewhere(options, communicator.size()),
                                 peer.get(), communicator);
      return tool_output::exit_code((tested->name() + "_perf").c_str(), code);
    });
  } catch (Error const& error) {
    report_failure(fmt::format("{}_perf: {}", tested->name(), error.what()));
    return error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported ? 2 : 1;
  }
}

}  // namespace weft::perf
