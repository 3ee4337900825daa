#include "common/head.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "common/weft_calls.hpp"
#include "weft/version.hpp"

namespace weft::perf {
namespace {

std::string options_text(Options const& options) {
  bool const by_factor = options.step_factor > 1;
  return fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: {} validation: "
      "{} graph: 0 unalign: {}\n",
      options.threads, options.gpus, options.min_bytes, options.max_bytes,
      by_factor ? options.step_factor : options.step_bytes, by_factor ? "factor" : "bytes", options.warmup,
      options.loop.iterations, options.aggregate, options.checks, options.unalign);
}

std::string memory_text(Options const& options) {
  if (options.device == DeviceType::cuda) {
    return fmt::format("# Memory: on GPUs, {}, untouched between calls; best of {} rounds, timed by events\n",
                       to_string(options.memory), options.rounds);
  }
  return fmt::format(
      "# Memory: {}, {}; best of up to {} undisturbed rounds, else the least disturbed\n", to_string(options.memory),
      options.loop.touch ? "written before and read after every call" : "untouched between calls", options.rounds);
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    auto const colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::vector<RankPlace> rank_places(Communicator& communicator) {
  auto mine = Buffer::host(2, DataType::i64);
  auto all = Buffer::host(2 * static_cast<std::size_t>(communicator.size()), DataType::i64);
  mine.as<std::int64_t>()[0] = getpid();
  mine.as<std::int64_t>()[1] = sched_getcpu();
  communicator.all_gather(mine.view(), all.view()).wait();
  auto const hosts = tell_all(communicator, host_name());
  auto const names = tell_all(communicator, cpu_name());
  std::vector<RankPlace> places(static_cast<std::size_t>(communicator.size()));
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    auto const cpu = all.as<std::int64_t>()[2 * rank + 1];
    places[rank] = {all.as<std::int64_t>()[2 * rank], cpu, fmt::format("cpu {}", cpu), names[rank], hosts[rank]};
  }
  return places;
}

std::string head_text(Case const& what, Options const& options, std::vector<RankPlace> const& places) {
  auto text = fmt::format("# weft version {}, in the format of nccl-tests 2.19\n", WEFT_VERSION_STRING);
  text += fmt::format("# Collective test starting: {}_perf\n", what.name()) + options_text(options);
  if (options.blocking == 1) text += "# Blocking Enabled: a barrier after each collective\n";
  for (auto const& note : options.notes) text += fmt::format("# Note: {}\n", note);
  text += memory_text(options);
  if (options.link) text += fmt::format("# Link: {}\n", options.link->describe());
  text += "#\n# Using devices\n";
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    auto const& place = places[rank];
    text += fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [{}] {}\n", rank, 0, place.pid,
                        place.host, place.device, place.bus_id, place.name);
  }
  return text;
}

}  // namespace weft::perf
