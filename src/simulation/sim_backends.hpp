#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/backend_maker.hpp"
#include "collectives/p2p/p2p_backend.hpp"
#include "simulation/simulated_ranks.hpp"
#include "transport/sim/world.hpp"

namespace weft::sim {

/// The back ends of a simulation's communicators.
class SimBackends final : public BackendMaker {
 public:
  SimBackends(World& world, Options const& options, bool hierarchical);

  [[nodiscard]] std::unique_ptr<Backend> create(Bootstrap& bootstrap, CommunicatorOptions const& options) override;
  /// For finding one another.
  [[nodiscard]] std::unique_ptr<Transport> meeting_place() const;

 private:
  using Members = std::shared_ptr<std::vector<int> const>;
  /// Of a communicator: its own numbers, the same on all its ranks.
  struct Numbers {
    std::uint32_t data, sizes, messages;
  };

  [[nodiscard]] std::unique_ptr<Transport> open(std::uint32_t channel, bool carries_data, Members const& members) const;
  [[nodiscard]] std::unique_ptr<Backend> flat(Numbers const& numbers, Members const& members, LinkSpeed const& link,
                                              bool bitwise);
  [[nodiscard]] std::unique_ptr<Backend> by_hosts(std::array<Numbers, 2> const& numbers, Members const& members,
                                                  CommunicatorOptions const& options);
  /// Memory that nothing is moved to or from is one for all ranks, whose addresses would take more than there is.
  [[nodiscard]] std::shared_ptr<void> shared_memory(std::uint32_t channel, std::uint64_t call, std::size_t bytes);

  World& world_;
  bool carries_data_;
  double reduction_s_per_byte_;
  bool hierarchical_;
  std::uint32_t meeting_channel_;
  std::array<Numbers, 2> all_ranks_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::weak_ptr<void>> shared_;
};

}  // namespace weft::sim
