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

/// Makes the back ends of a simulation's communicators.
class SimBackends final : public BackendMaker {
 public:
  SimBackends(World& world, Options const& options, bool hierarchical);

  [[nodiscard]] std::unique_ptr<Backend> create(Bootstrap& bootstrap, CommunicatorOptions const& options) override;
  /// A back end of all ranks, by hosts, for calls that are known to agree. None of them carries its bytes where the
  /// options say so.
  [[nodiscard]] std::unique_ptr<Backend> agreed_by_hosts(WireFormat wire);
  /// The transport by which ranks find one another.
  [[nodiscard]] std::unique_ptr<Transport> meeting_place() const;

 private:
  using Members = std::shared_ptr<std::vector<int> const>;
  /// The channels of one communicator, the same on all its ranks.
  struct Channels {
    std::uint32_t calls = 0;
    std::uint32_t sizes = 0;  ///< for calls whose bytes are not carried
    std::uint32_t messages = 0;
    std::uint32_t inside = 0;  ///< within hosts
    std::uint32_t inside_sizes = 0;
    std::uint32_t between = 0;
    std::uint32_t between_sizes = 0;
  };
  /// How one back end of a communicator works.
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
  /// The layout as the running rank sees it.
  [[nodiscard]] HostLayout layout_of(Members const& members) const;
  [[nodiscard]] Members locals_of(HostLayout const& layout, Members const& members) const;
  /// Memory that no bytes are moved to or from. All ranks share it, as memory of their own would need more addresses
  /// than there are.
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
