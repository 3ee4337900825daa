#include "simulation/sim_backends.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "simulation/sim_bootstrap.hpp"

namespace weft::sim {

SimBackends::SimBackends(World& world, Options const& options, bool hierarchical)
    : world_(world),
      carries_data_(options.carries_data),
      reduction_s_per_byte_(options.reduction_s_per_byte),
      hierarchical_(hierarchical),
      meeting_channel_(world.new_channel()),
      all_ranks_{Numbers{world.new_channel(), world.new_channel(), world.new_channel()},
                 Numbers{world.new_channel(), world.new_channel(), world.new_channel()}} {}

std::unique_ptr<Transport> SimBackends::open(std::uint32_t channel, bool carries_data, Members const& members) const {
  return std::make_unique<RankTransport>(world_, world_.running_rank(), Channel{channel, carries_data}, members);
}

std::unique_ptr<Transport> SimBackends::meeting_place() const {
  return open(meeting_channel_, true, nullptr);
}

std::unique_ptr<Backend> SimBackends::flat(Numbers const& numbers, Members const& members, LinkSpeed const& link,
                                           bool bitwise) {
  p2p::Network network;
  network.alpha_s = link.latency_s + link.gap_s;
  network.beta_s_per_byte = 1 / link.bytes_per_s;
  network.gamma_s_per_byte = reduction_s_per_byte_;
  network.bitwise = bitwise;
  p2p::Ends ends{open(numbers.data, true, members), carries_data_ ? nullptr : open(numbers.sizes, false, members),
                 open(numbers.messages, true, members)};
  if (!carries_data_) {
    ends.memory = [this, channel = numbers.sizes](std::uint64_t call, std::size_t bytes) {
      return shared_memory(channel, call, bytes);
    };
  }
  return std::make_unique<p2p::P2pBackend>(
      std::move(ends), network,
      [&world = world_](ErrorCode code, std::string const& reason) { world.fail(code, reason); });
}

std::shared_ptr<void> SimBackends::shared_memory(std::uint32_t channel, std::uint64_t call, std::size_t bytes) {
  auto& known = shared_[{channel, call}];
  auto memory = known.lock();
  if (memory) return memory;
  auto owner = std::make_shared<Buffer>(Buffer::host(bytes, DataType::u8));
  auto* const data = owner->data();
  memory = {std::move(owner), data};
  known = memory;
  return memory;
}

std::unique_ptr<Backend> SimBackends::by_hosts(std::array<Numbers, 2> const& numbers, Members const& members,
                                               CommunicatorOptions const& options) {
  auto const per_host = world_.topology().ranks_per_host;
  auto const member = [&](int rank) { return members ? (*members)[static_cast<std::size_t>(rank)] : rank; };
  auto const n = members ? static_cast<int>(members->size()) : world_.size();
  std::vector<std::string> names;
  int self = 0;
  for (int rank = 0; rank < n; ++rank) {
    names.push_back(std::to_string(member(rank) / per_host));
    if (member(rank) == world_.running_rank()) self = rank;
  }
  HostLayout layout(self, HostLayout::number(names));
  auto const bitwise = options.reproducibility == Reproducibility::bitwise;
  auto const& topology = world_.topology();
  if (layout.hosts().size() == 1) return flat(numbers[0], members, topology.inside, bitwise);
  if (layout.hosts().size() == static_cast<std::size_t>(n) && options.config->wire == WireFormat::f32) {
    return flat(numbers[0], members, topology.between, bitwise);
  }
  auto locals = std::make_shared<std::vector<int>>();
  for (auto const local : layout.locals()) locals->push_back(member(local));
  // Partial results of hosts are what `bits` are about there.
  HostOrder const order(bitwise ? std::vector<std::vector<int>>() : layout.hosts());
  auto intra = flat(numbers[1], locals, topology.inside, true);
  auto inter = flat(numbers[0], members, topology.between, true);
  return std::make_unique<hierarchical::HierarchicalBackend>(std::move(intra), std::move(inter),
                                                             hierarchical::HierarchicalBackend::Between(),
                                                             std::move(layout), order, options.config->wire, nullptr);
}

std::unique_ptr<Backend> SimBackends::create(Bootstrap& bootstrap, CommunicatorOptions const& options) {
  auto numbers = all_ranks_;
  Members members;
  if (dynamic_cast<SimBootstrap*>(&bootstrap) == nullptr) {  // made from another communicator
    struct Told {
      int rank = 0;
      std::array<Numbers, 2> numbers{};
    } mine;
    mine.rank = world_.running_rank();
    if (bootstrap.rank() == 0) {
      for (auto& each : mine.numbers) each = {world_.new_channel(), world_.new_channel(), world_.new_channel()};
    }
    auto const bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<Told> all(static_cast<std::size_t>(bootstrap.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    numbers = all.front().numbers;
    auto ranks = std::make_shared<std::vector<int>>();
    for (auto const& one : all) ranks->push_back(one.rank);
    members = std::move(ranks);
  }
  if (hierarchical_) return by_hosts(numbers, members, options);
  auto const one_host = world_.topology().ranks_per_host == world_.size();
  return flat(numbers[0], members, one_host ? world_.topology().inside : world_.topology().between,
              options.reproducibility == Reproducibility::bitwise);
}

}  // namespace weft::sim
