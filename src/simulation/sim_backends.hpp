#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/backend_maker.hpp"
#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/p2p/p2p_backend.hpp"
#include "simulation/simulated_ranks.hpp"
#include "transport/sim/world.hpp"

namespace weft::sim {

/// The back ends of a simulation's communicators.
class SimBackends final : public BackendMaker {
 public:
  SimBackends(World& world, Options const& options, bool hierarchical);

  [[nodiscard]] std::unique_ptr<Backend> create(Bootstrap& bootstrap, CommunicatorOptions const& options) override;
  /// Of all ranks, by hosts, for calls that are known to agree, none of which carries its bytes where options say so.
  [[nodiscard]] std::unique_ptr<Backend> agreed_by_hosts(WireFormat wire);
  /// For finding one another.
  [[nodiscard]] std::unique_ptr<Transport> meeting_place() const;

 private:
  using Members = std::shared_ptr<std::vector<int> const>;
  /// Those of a communicator, the same on all its ranks.
  struct Channels {
    std::uint32_t calls = 0;
    std::uint32_t sizes = 0;  ///< of calls whose bytes are not carried
    std::uint32_t messages = 0;
    std::uint32_t inside = 0;  ///< hosts
    std::uint32_t inside_sizes = 0;
    std::uint32_t between = 0;
    std::uint32_t between_sizes = 0;
  };
  /// How one back end of a communicator goes.
  struct How {
    bool carries_data = true;
    bool announces = true;
    bool bitwise = false;
  };

  [[nodiscard]] Channels new_channels();
  [[nodiscard]] std::unique_ptr<Transport> open(std::uint32_t channel, bool carries_data, Members const& members) const;
  [[nodiscard]] std::unique_ptr<p2p::P2pBackend> flat(Channels const& channels, Members const& members,
                                                      LinkSpeed const& link, How const& how);
  [[nodiscard]] hierarchical::Levels levels(Channels const& channels, Members const& members, Members const& locals,
                                            How const& how);
  [[nodiscard]] std::unique_ptr<Backend> all_alike(Channels const& channels, Members const& members,
                                                   LinkSpeed const& link, bool bitwise);
  [[nodiscard]] std::unique_ptr<Backend> by_hosts(Channels const& channels, Members const& members,
                                                  CommunicatorOptions const& options);
  /// The running rank's.
  [[nodiscard]] HostLayout layout_of(Members const& members) const;
  [[nodiscard]] Members locals_of(HostLayout const& layout, Members const& members) const;
  /// Memory that nothing is moved to or from is one for all ranks, whose addresses would take more than there is.
  [[nodiscard]] std::shared_ptr<void> shared_memory(std::uint32_t channel, std::uint64_t call, std::size_t bytes);

  World& world_;
  bool carries_data_;
  double reduction_s_per_byte_;
  bool hierarchical_;
  std::uint32_t meeting_channel_;
  Channels all_ranks_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::weak_ptr<void>> shared_;
};

}  // namespace weft::sim
