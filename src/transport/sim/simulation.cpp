#include "transport/sim/simulation.hpp"

#include "transport/sim/world.hpp"

namespace weft::sim {

void Outcome::rethrow() const {
  // Errors of ranks that only heard of another's failure come last.
  std::exception_ptr consequence;
  for (auto const& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (Error const& known) {
      if (known.code() != ErrorCode::aborted) throw;
      consequence = error;
    }
  }
  if (consequence) std::rethrow_exception(consequence);
}

Outcome simulate(Topology const& topology, Options const& options, std::function<void(Transport&)> const& body) {
  return World(topology, options).run(body);
}

Time now(Transport const& transport) {
  return dynamic_cast<RankTransport const&>(transport).world().virtual_now();
}

void pass(Transport& transport, Time duration) {
  auto& self = dynamic_cast<RankTransport&>(transport);
  self.world().pass(self.world_rank(), duration);
}

double slowness(Transport const& transport) {
  auto const& self = dynamic_cast<RankTransport const&>(transport);
  return self.world().slowness(self.world_rank());
}

}  // namespace weft::sim
