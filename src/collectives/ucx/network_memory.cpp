#include "collectives/ucx/network_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/known_figures.hpp"
#include "core/log.hpp"

namespace weft::ucx {
namespace {

KnownFigures<p2p::NetworkCosts>& known_networks() {
  static KnownFigures<p2p::NetworkCosts> instance;
  return instance;
}

p2p::NetworkCosts slowest(p2p::NetworkCosts const& a, p2p::NetworkCosts const& b) {
  return {std::max(a.alpha_s, b.alpha_s), std::max(a.beta_s_per_byte, b.beta_s_per_byte)};
}

}  // namespace

p2p::NetworkCosts find_costs(Bootstrap& bootstrap, Transport& transport, CommunicatorOptions const& options,
                             std::string const& devices, std::vector<int> const& hosts) {
  if (hosts.size() < 2) return {};
  auto const several = *std::max_element(hosts.begin(), hosts.end()) + 1;
  auto const network =
      fmt::format("{} ranks on {} hosts over {}", hosts.size(), several, devices.empty() ? "UCX's devices" : devices);
  auto const measure = [&] {
    auto const costs = p2p::measure_network(transport, p2p::farthest(hosts));
    if (transport.rank() == 0) {
      log(LogLevel::info, fmt::format("{}: a message takes {:.3g} us and {:.4g} MB/s, measured", network,
                                      costs.alpha_s * 1e6, 1e-6 / costs.beta_s_per_byte));
    }
    return costs;
  };
  return known_networks().find(bootstrap, network, options.config->tuning_cache.has_value(), {}, measure, slowest);
}

}  // namespace weft::ucx
