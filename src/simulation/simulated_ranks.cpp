#include "simulation/simulated_ranks.hpp"

#include "simulation/sim_backends.hpp"
#include "simulation/sim_bootstrap.hpp"
#include "transport/sim/world.hpp"

namespace weft::sim {
namespace {

/// Enough for a rank that has a stream and a trainer and makes plans. Pages are taken only when they are first touched.
constexpr std::size_t kStackBytes = std::size_t{1} << 20;

CommunicatorOptions resolved(CommunicatorOptions options) {
  if (options.config) return options;
  options.config = Config();
  options.config->flight_recorder = 0;
  return options;
}

}  // namespace

Interval SimulatedRank::compute(Time duration) const {
  auto const start = now();
  pass(transport_, from_seconds(to_seconds(duration) * slowness(transport_)));
  return {start, now()};
}

TimePoint SimulatedRank::now() const {
  return weft::now();
}

Outcome simulate_ranks(Topology const& topology, Options const& options, RankOptions const& how,
                       std::function<void(SimulatedRank&)> const& body) {
  auto with = options;
  if (!with.stacks) with.stacks = std::make_shared<StackPool>(kStackBytes);
  World world(topology, with);
  SimBackends backends(world, options, how.hierarchical);
  BackendMaker::Scope const here(backends);
  auto const communicator_options = resolved(how.communicator);
  return world.run([&](Transport& transport) {
    auto const meeting_place = backends.meeting_place();
    auto communicator = Communicator::create(std::make_shared<SimBootstrap>(*meeting_place), communicator_options);
    SimulatedRank self(communicator, transport);
    body(self);
  });
}

Outcome simulate_by_hosts(Topology const& topology, Options const& options, WireFormat wire,
                          std::function<void(Backend&, Transport&)> const& body) {
  World world(topology, options);
  SimBackends backends(world, options, true);
  return world.run([&](Transport& transport) {
    auto const backend = backends.agreed_by_hosts(wire);
    body(*backend, transport);
  });
}

}  // namespace weft::sim
