#include "collectives/ucx/network_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <span>

#include "core/log.hpp"

namespace weft::ucx {
namespace {

struct KnownNetworks {
  std::mutex mutex;
  std::map<std::string, p2p::NetworkCosts> costs;
};

KnownNetworks& known_networks() {
  static KnownNetworks instance;
  return instance;
}

/// What a rank tells of what it knows.
struct Knowledge {
  bool measures = false;
  bool knows = false;
  p2p::NetworkCosts costs{};
};

std::vector<Knowledge> tell_all(Bootstrap& bootstrap, Knowledge const& mine) {
  auto const raw = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<Knowledge> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(static_cast<void*>(all.data()), raw.data(), raw.size());
  return all;
}

/// The slowest of what ranks know, who may have measured it in communicators of their own.
p2p::NetworkCosts slowest(std::vector<Knowledge> const& all) {
  auto worst = all.front().costs;
  for (auto const& each : all) {
    worst.alpha_s = std::max(worst.alpha_s, each.costs.alpha_s);
    worst.beta_s_per_byte = std::max(worst.beta_s_per_byte, each.costs.beta_s_per_byte);
  }
  return worst;
}

}  // namespace

p2p::NetworkCosts find_costs(Bootstrap& bootstrap, Transport& transport, CommunicatorOptions const& options,
                             std::string const& devices, std::vector<int> const& hosts) {
  if (hosts.size() < 2) return {};
  auto const several = *std::max_element(hosts.begin(), hosts.end()) + 1;
  auto const network =
      fmt::format("{} ranks on {} hosts over {}", hosts.size(), several, devices.empty() ? "UCX's devices" : devices);
  Knowledge mine;
  mine.measures = options.config->tuning_cache.has_value();
  {
    std::lock_guard const lock(known_networks().mutex);
    auto const found = known_networks().costs.find(network);
    mine.knows = found != known_networks().costs.end();
    if (mine.knows) mine.costs = found->second;
  }
  auto const all = tell_all(bootstrap, mine);
  if (!all.front().measures) return {};
  auto const all_know = std::all_of(all.begin(), all.end(), [](Knowledge const& each) { return each.knows; });
  if (all_know) return slowest(all);
  auto const costs = p2p::measure_network(transport, p2p::farthest(hosts));
  if (transport.rank() == 0) {
    log(LogLevel::info, fmt::format("{}: a message takes {:.3g} us and {:.4g} MB/s, measured", network,
                                    costs.alpha_s * 1e6, 1e-6 / costs.beta_s_per_byte));
  }
  std::lock_guard const lock(known_networks().mutex);
  known_networks().costs[network] = costs;
  return costs;
}

}  // namespace weft::ucx
