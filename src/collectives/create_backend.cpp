#include "collectives/create_backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/backend_maker.hpp"
#include "collectives/carrier.hpp"
#include "collectives/host_layout.hpp"
#include "collectives/shm/shm_backend.hpp"
#include "core/host_identity.hpp"
#include "core/launcher.hpp"
#include "core/log.hpp"
#include "core/rank_hosts.hpp"
#include "weft/error.hpp"
#if WEFT_WITH_MPI || WEFT_WITH_UCX
#include "collectives/hierarchical/hierarchical_backend.hpp"
#endif
#if WEFT_WITH_MPI
#include "collectives/mpi/mpi_backend.hpp"
#include "core/mpi_members.hpp"
#endif
#if WEFT_WITH_UCX
#include "collectives/transport_bootstrap.hpp"
#include "collectives/ucx/ucx_backend.hpp"
#endif

namespace weft {
namespace {

/// What each rank tells the others about itself, in bytes that ranks can exchange.
struct Introduction {
  char host[kMostHostIdCharacters + 1] = {};
  char host_name[kMostHostIdCharacters + 1] = {};
  bool asks = false;
  bool prefers_ucx = false;  ///< between hosts, where no setting asks for a back end
  bool emulates_link = false;
  BackendKind wanted = BackendKind::shm;
  Reproducibility reproducibility = Reproducibility::run_to_run;
  WireFormat wire = WireFormat::f32;
  int tag = 0;  ///< rank 0's is used: tells apart communicators that several threads create at once
};

/// Whether ranks talk over UCX unless a setting says otherwise: where this library can, and MPI has not started them.
bool prefers_ucx(Bootstrap const& bootstrap) {
#if WEFT_WITH_UCX
#if WEFT_WITH_MPI
  return bootstrap.mpi() == nullptr && !started_by_mpi();
#else
  static_cast<void>(bootstrap);
  return true;
#endif
#else
  static_cast<void>(bootstrap);
  return false;
#endif
}

std::vector<Introduction> introduce(Bootstrap& bootstrap, CommunicatorOptions const& options) {
  auto const& config = *options.config;
  Introduction mine;
  host_identity(config).copy(mine.host, kMostHostIdCharacters);
  host_name(config).copy(mine.host_name, kMostHostIdCharacters);
  mine.asks = config.backend.has_value();
  mine.wanted = config.backend.value_or(BackendKind::shm);
  mine.reproducibility = options.reproducibility;
  mine.wire = config.wire;
  mine.emulates_link = options.emulated_link.has_value();
  mine.prefers_ucx = prefers_ucx(bootstrap);
  mine.tag = static_cast<int>(std::chrono::steady_clock::now().time_since_epoch().count() % 32768);
  auto const bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<Introduction> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

/// All ranks must emulate a link, or none: with an emulated link calls meet in another way.
void check_links(std::vector<Introduction> const& all) {
  auto const odd = std::find_if(
      all.begin(), all.end(), [&](Introduction const& one) { return one.emulates_link != all.front().emulates_link; });
  if (odd == all.end()) return;
  auto const rank = odd - all.begin();
  throw Error(ErrorCode::mismatch,
              fmt::format("rank {} has an emulated_link, rank {} none; pass CommunicatorOptions with one on all ranks, "
                          "or on none",
                          odd->emulates_link ? rank : 0, odd->emulates_link ? 0 : rank));
}

/// Which ranks share a host. A machine with more ranks than can share memory counts as several hosts.
RankHosts hosts_of(std::vector<Introduction> const& all) {
  std::vector<std::string> identities;
  std::vector<std::string> names;
  for (auto const& one : all) {
    identities.emplace_back(one.host);
    names.emplace_back(one.host_name);
  }
  return HostLayout::find(identities, std::move(names), shm::kMaxRanks);
}

/// The kind of back end. `by_ucx`: UCX rather than MPI carries what crosses hosts, unless a setting asks otherwise.
BackendKind choose(Introduction const& first, std::vector<int> const& hosts, bool by_ucx) {
  if (first.asks) return first.wanted;
  auto const several = *std::max_element(hosts.begin(), hosts.end()) + 1;
  if (several == 1) return BackendKind::shm;
  auto const flat = several == static_cast<int>(hosts.size()) && first.wire == WireFormat::f32;
  if (flat) return by_ucx ? BackendKind::ucx : BackendKind::mpi;
  return by_ucx ? BackendKind::hierarchical_ucx : BackendKind::hierarchical;
}

/// Whether UCX is to carry what crosses hosts, for ranks that MPI has started.
bool is_carried_by_ucx(Bootstrap& bootstrap, CommunicatorOptions const& options, RankHosts const& hosts,
                       Introduction const& first) {
  if (first.asks || !hosts.are_several()) return false;
  auto const choice = choose_carrier(bootstrap, options, hosts, first.tag);
  auto const by_ucx = choice.carrier == Carrier::ucx;
  if (bootstrap.rank() == 0) {
    auto const line = fmt::format("{} carries what crosses hosts: {}", by_ucx ? "UCX" : "MPI", choice.why);
    if (options.config->explain) {
      tell("explain", line);
    } else {
      auto const* const advice = choice.is_regretted ? "; WEFT_BACKEND says so without trying" : "";
      log_once(choice.is_regretted ? LogLevel::warn : LogLevel::info, line + advice);
    }
  }
  return by_ucx;
}

std::string describe_places(RankHosts const& hosts) {
  auto const& numbers = hosts.numbers;
  auto const elsewhere = std::find_if(numbers.begin(), numbers.end(), [](int host) { return host != 0; });
  if (elsewhere == numbers.end()) return "all ranks are on one host";
  auto const rank = elsewhere - numbers.begin();
  if (!hosts.one_machine) return fmt::format("ranks 0 and {} are on different hosts", rank);
  return fmt::format("ranks 0 and {} are on {}, which has more ranks than the {} that can share memory", rank,
                     hosts.names[0], shm::kMaxRanks);
}

[[noreturn]] void refuse(BackendKind kind, RankHosts const& hosts, std::string const& why) {
  auto const place = describe_places(hosts);
  throw Error(ErrorCode::unsupported, fmt::format("backend {} ({}): {}", to_string(kind), place, why));
}

#if WEFT_WITH_MPI || WEFT_WITH_UCX
/// Lets the back end inside the host, while it waits, look for failures on `inter`. The hierarchy owns both.
template <typename Inter>
auto look_by(Inter& inter) {
  return [&inter](Call const& call, int peer, std::function<bool()> const& ready, std::chrono::nanoseconds waited) {
    inter.look_around(call, peer, ready, waited);
  };
}

/// `create_levels(layout, inside, order)` makes both levels; `carrier`: the name of what carries bytes between hosts.
template <typename CreateLevels>
std::unique_ptr<Backend> create_hierarchical(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                             std::vector<int> const& hosts, Introduction const& first,
                                             std::string_view carrier, CreateLevels const& create_levels) {
  HostLayout layout(bootstrap.rank(), hosts);
  auto const explains = options.config->explain && bootstrap.rank() == 0;
  auto inside = options;
  inside.config->explain = explains;
  // Hosts in name only compete for the same cores, so measurements would say nothing.
  if (inside.config->host_id) inside.config->tuning_cache.reset();
  // Where every rank has a host to itself, the order by hosts is the rank order.
  auto const by_hosts = first.reproducibility == Reproducibility::run_to_run && layout.hosts().size() < hosts.size();
  HostOrder const order(by_hosts ? layout.hosts() : std::vector<std::vector<int>>());
  hierarchical::Levels levels = create_levels(layout, inside, order);
  auto explainer = explains ? std::make_unique<Explainer>("hierarchical", bootstrap.size()) : nullptr;
  std::vector<std::size_t> ranks_of_hosts;
  for (auto const& ranks : layout.hosts()) ranks_of_hosts.push_back(ranks.size());
  auto const shape = fmt::format("hosts of {} ranks over {}{}", fmt::join(ranks_of_hosts, ", "), carrier,
                                 by_hosts ? "" : ", in rank order");
  auto backend = std::make_unique<hierarchical::HierarchicalBackend>(std::move(levels), std::move(layout), order,
                                                                     first.wire, std::move(explainer));
  backend->find_level_costs(bootstrap, shape, inside.config->tuning_cache.has_value(), options.config->timeout);
  return backend;
}
#endif

std::unique_ptr<Backend> create_over_mpi(BackendKind kind, Bootstrap& bootstrap, CommunicatorOptions const& options,
                                         RankHosts const& hosts, Introduction const& first) {
#if WEFT_WITH_MPI
  auto const members = bootstrap.join_mpi();
  if (!members) {
    refuse(kind, hosts,
           fmt::format("needs ranks that MPI has started, not \"{}\": start every rank with mpirun or srun",
                       bootstrap.name()));
  }
  if (kind == BackendKind::mpi) return mpi::MpiBackend::create(bootstrap, members, options, hosts);
  return create_hierarchical(
      bootstrap, options, hosts.numbers, first, "MPI",
      [&](HostLayout const& layout, CommunicatorOptions const& inside, HostOrder const& order) {
        auto inter = mpi::MpiBackend::create(bootstrap, members, options, hosts, order);
        auto const locals = mpi_bootstrap_of(members->subset(layout.locals()), first.tag, *inside.config);
        auto intra = shm::ShmBackend::create(*locals, inside, {layout.locals(), hosts, look_by(*inter)});
        return hierarchical::Levels{std::move(intra), std::move(inter)};
      });
#else
  static_cast<void>(bootstrap), static_cast<void>(options), static_cast<void>(first);
  refuse(kind, hosts,
         "Weft was built without MPI: build it again where an MPI library is installed, with -DWEFT_WITH_MPI=ON");
#endif
}

std::unique_ptr<Backend> create_over_ucx(BackendKind kind, Bootstrap& bootstrap, CommunicatorOptions const& options,
                                         RankHosts const& hosts, Introduction const& first) {
#if WEFT_WITH_UCX
  if (kind == BackendKind::ucx) return ucx::UcxBackend::create(bootstrap, options, hosts);
  return create_hierarchical(
      bootstrap, options, hosts.numbers, first, "UCX",
      [&](HostLayout const& layout, CommunicatorOptions const& inside, HostOrder const& order) {
        constexpr bool kIsOuter = true;
        auto inter = ucx::UcxBackend::create(bootstrap, options, hosts, order, kIsOuter);
        TransportBootstrap locals(inter->transport(), layout.locals());
        auto* const owned = inter.get();
        auto intra = shm::ShmBackend::create(locals, inside, {layout.locals(), hosts, look_by(*inter)});
        return hierarchical::Levels{std::move(intra), std::move(inter),
                                    [owned](Call const& call) -> Transport& { return owned->within(call); }};
      });
#else
  static_cast<void>(bootstrap), static_cast<void>(options), static_cast<void>(first);
  refuse(kind, hosts,
         "Weft was built without UCX: build it again where libucx-dev is installed, with -DWEFT_WITH_UCX=ON");
#endif
}

/// A wire format needs a hierarchical back end, which rounds what crosses hosts, and Reproducibility::run_to_run, since
/// the bits depend on which ranks share a host.
void check_wire(Introduction const& first, BackendKind kind, RankHosts const& hosts) {
  if (first.wire == WireFormat::f32 || !hosts.are_several()) return;
  auto const wire = to_string(first.wire);
  if (first.reproducibility == Reproducibility::bitwise) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("config.wire (WEFT_WIRE) is {}, whose bits depend on which ranks share a host, which "
                            "Reproducibility::bitwise forbids; choose f32, or run_to_run",
                            wire));
  }
  if (kind == BackendKind::mpi || kind == BackendKind::ucx) {
    auto const better = kind == BackendKind::mpi ? BackendKind::hierarchical : BackendKind::hierarchical_ucx;
    refuse(kind, hosts,
           fmt::format("it knows of no hosts, between which WEFT_WIRE={} would have f32 rounded; use {}, leave "
                       "WEFT_BACKEND unset, or choose WEFT_WIRE=f32",
                       wire, to_string(better)));
  }
}

}  // namespace

std::unique_ptr<Backend> create_backend(Bootstrap& bootstrap, CommunicatorOptions const& options) {
  if (auto* const maker = BackendMaker::current()) return maker->create(bootstrap, options);
  auto const all = introduce(bootstrap, options);
  check_links(all);
  auto const hosts = hosts_of(all);
  auto const by_ucx = all.front().prefers_ucx || is_carried_by_ucx(bootstrap, options, hosts, all.front());
  auto const kind = choose(all.front(), hosts.numbers, by_ucx);
  check_wire(all.front(), kind, hosts);
  switch (kind) {
    case BackendKind::shm: break;
    case BackendKind::mpi:
    case BackendKind::hierarchical: return create_over_mpi(kind, bootstrap, options, hosts, all.front());
    case BackendKind::ucx:
    case BackendKind::hierarchical_ucx: return create_over_ucx(kind, bootstrap, options, hosts, all.front());
  }
  if (hosts.are_several()) {
    refuse(kind, hosts, "they share no memory; use another back end, or leave WEFT_BACKEND unset");
  }
  return shm::ShmBackend::create(bootstrap, options);
}

}  // namespace weft
