#include "simulation/sim_backends.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "simulation/sim_backend.hpp"
#include "simulation/sim_bootstrap.hpp"

namespace weft::sim {

SimBackends::SimBackends(World& world, Options const& options, bool hierarchical)
    : world_(world),
      carries_data_(options.carries_data),
      reduction_s_per_byte_(options.reduction_s_per_byte),
      hierarchical_(hierarchical),
      meeting_channel_(world.new_channel()),
      all_ranks_(new_channels()) {}

SimBackends::Channels SimBackends::new_channels() {
  auto const next = [&] { return world_.new_channel(); };
  return {next(), next(), next(), next(), next(), next(), next()};
}

std::unique_ptr<Transport> SimBackends::open(std::uint32_t channel, bool carries_data, Members const& members) const {
  return std::make_unique<RankTransport>(world_, world_.running_rank(), Channel{channel, carries_data}, members);
}

std::unique_ptr<Transport> SimBackends::meeting_place() const {
  return open(meeting_channel_, true, nullptr);
}

HostLayout SimBackends::layout_of(Members const& members) const {
  auto const n = members ? static_cast<int>(members->size()) : world_.size();
  std::map<int, int> known;
  std::vector<int> hosts;
  int self = 0;
  for (int rank = 0; rank < n; ++rank) {
    auto const in_world = members ? (*members)[static_cast<std::size_t>(rank)] : rank;
    auto const host = in_world / world_.topology().ranks_per_host;
    hosts.push_back(known.try_emplace(host, static_cast<int>(known.size())).first->second);
    if (in_world == world_.running_rank()) self = rank;
  }
  return {self, std::move(hosts)};
}

SimBackends::Members SimBackends::locals_of(HostLayout const& layout, Members const& members) const {
  if (!members) return std::make_shared<std::vector<int> const>(layout.locals());
  auto locals = std::make_shared<std::vector<int>>();
  for (auto const local : layout.locals()) locals->push_back((*members)[static_cast<std::size_t>(local)]);
  return locals;
}

std::unique_ptr<p2p::P2pBackend> SimBackends::flat(Channels const& channels, Members const& members,
                                                   LinkSpeed const& link, How const& how) {
  p2p::Network network;
  network.alpha_s = link.latency_s + link.gap_s;
  network.beta_s_per_byte = 1 / link.bytes_per_s;
  network.gamma_s_per_byte = reduction_s_per_byte_;
  network.bitwise = how.bitwise;
  p2p::Ends ends;
  if (how.announces) ends.announcements = open(channels.calls, true, members);
  ends.data = open(how.carries_data ? channels.calls : channels.sizes, how.carries_data, members);
  ends.messages = open(channels.messages, true, members);
  if (!how.carries_data) {
    ends.memory = [this, channel = channels.sizes](std::uint64_t call, std::size_t bytes) {
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

std::unique_ptr<Backend> SimBackends::all_alike(Channels const& channels, Members const& members, LinkSpeed const& link,
                                                bool bitwise) {
  auto data = flat(channels, members, link, {.bitwise = bitwise});
  auto sizes = carries_data_ ? nullptr : flat(channels, members, link, {.carries_data = false, .bitwise = bitwise});
  auto messages = flat(channels, members, link, {});
  auto const layout = layout_of(members);
  return std::make_unique<SimBackend>(std::move(data), std::move(sizes), std::move(messages), layout.rank(),
                                      layout.size());
}

// Calls inside hosts belong to a call that has been announced already. `bitwise` is about the hosts' partial results
// there.
hierarchical::Levels SimBackends::levels(Channels const& channels, Members const& members, Members const& locals,
                                         How const& how) {
  auto const& topology = world_.topology();
  auto const number = how.carries_data ? channels.between : channels.between_sizes;
  auto inside_channels = channels;
  inside_channels.calls = channels.inside;
  inside_channels.sizes = channels.inside_sizes;
  hierarchical::Levels levels;
  levels.intra = flat(inside_channels, locals, topology.inside,
                      {.carries_data = how.carries_data, .announces = false, .bitwise = true});
  levels.inter = flat(channels, members, topology.between,
                      {.carries_data = how.carries_data, .announces = how.announces, .bitwise = true});
  std::shared_ptr<Transport> const messages = open(number, how.carries_data, members);
  levels.between = [messages](Call const& /*announced*/) -> Transport& { return *messages; };
  levels.work = hierarchical::OwnWork(messages.get());
  return levels;
}

std::unique_ptr<Backend> SimBackends::by_hosts(Channels const& channels, Members const& members,
                                               CommunicatorOptions const& options) {
  auto const layout = layout_of(members);
  auto const bitwise = options.reproducibility == Reproducibility::bitwise;
  auto const& topology = world_.topology();
  auto const hosts = layout.hosts().size();
  auto const wire = options.config->wire;
  if (hosts == 1) return all_alike(channels, members, topology.inside, bitwise);
  if (hosts == static_cast<std::size_t>(layout.size()) && wire == WireFormat::f32) {
    return all_alike(channels, members, topology.between, bitwise);
  }
  auto const locals = locals_of(layout, members);
  HostOrder const order(bitwise ? std::vector<std::vector<int>>() : layout.hosts());
  auto const make = [&](bool carries_data) {
    return std::make_unique<hierarchical::HierarchicalBackend>(
        levels(channels, members, locals, {.carries_data = carries_data}), layout, order, wire, nullptr);
  };
  auto data = make(true);
  auto sizes = carries_data_ ? nullptr : make(false);
  // Messages of one rank inside and between hosts at once are threads' there.
  auto messages = flat(channels, members, topology.between, {});
  return std::make_unique<SimBackend>(std::move(data), std::move(sizes), std::move(messages), layout.rank(),
                                      layout.size());
}

std::unique_ptr<Backend> SimBackends::agreed_by_hosts(WireFormat wire) {
  auto const layout = layout_of(nullptr);
  return std::make_unique<hierarchical::HierarchicalBackend>(
      levels(all_ranks_, nullptr, locals_of(layout, nullptr), {.carries_data = carries_data_, .announces = false}),
      layout, HostOrder(layout.hosts()), wire, nullptr);
}

std::unique_ptr<Backend> SimBackends::create(Bootstrap& bootstrap, CommunicatorOptions const& options) {
  auto channels = all_ranks_;
  Members members;
  if (dynamic_cast<SimBootstrap*>(&bootstrap) == nullptr) {  // made from another communicator
    struct Told {
      int rank = 0;
      Channels channels{};
    } mine;
    mine.rank = world_.running_rank();
    if (bootstrap.rank() == 0) mine.channels = new_channels();
    auto const bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<Told> all(static_cast<std::size_t>(bootstrap.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    channels = all.front().channels;
    auto ranks = std::make_shared<std::vector<int>>();
    for (auto const& one : all) ranks->push_back(one.rank);
    members = std::move(ranks);
  }
  if (hierarchical_) return by_hosts(channels, members, options);
  auto const one_host = world_.topology().ranks_per_host == world_.size();
  return all_alike(channels, members, one_host ? world_.topology().inside : world_.topology().between,
                   options.reproducibility == Reproducibility::bitwise);
}

}  // namespace weft::sim
