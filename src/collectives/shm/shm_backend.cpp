#include "collectives/shm/shm_backend.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/shm/distance.hpp"
#include "collectives/shm/peer_memory.hpp"
#include "collectives/shm/tuner.hpp"
#include "collectives/shm/tuning_cache.hpp"
#include "core/host_identity.hpp"
#include "core/log.hpp"

namespace weft::shm {
namespace {

/// As many processors as Linux may have, several times those of a cpu_set_t; the kernel refuses a set too small for the
/// machine's.
using CpuSet = std::array<cpu_set_t, 8>;
constexpr std::size_t kMostCpus = sizeof(CpuSet) * 8;

bool has(CpuSet const& cpus, std::size_t cpu) noexcept {
  return CPU_ISSET_S(cpu, sizeof cpus, cpus.data());
}

/// What a rank tells the others about where it runs.
struct Whereabouts {
  char host[96] = {};  // boot id: one per running kernel
  CpuSet cpus{};
  PeerProcess process;
};

Whereabouts find_whereabouts() {
  Whereabouts mine;
  boot_id().copy(mine.host, sizeof mine.host - 1);
  ::sched_getaffinity(0, sizeof mine.cpus, mine.cpus.data());
  mine.process = describe_this_process();
  return mine;
}

struct CoreShares {
  std::vector<int> cpus;        // that any rank may use
  std::vector<int> first_cpus;  // of each rank
  bool ranks_share_cores = false;
  std::size_t distance = 0;  // see measure_distance()
};

/// Cores of all ranks together; shared when there are fewer of them than ranks, or ranks are bound to the same single
/// core.
CoreShares count_cores(std::vector<Whereabouts> const& all) {
  CpuSet together{};
  CoreShares shares;
  bool same_core = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    CpuSet const& own = all[i].cpus;
    CPU_OR_S(sizeof together, together.data(), together.data(), own.data());
    std::size_t first = 0;
    while (first < kMostCpus && !has(own, first)) ++first;
    shares.first_cpus.push_back(static_cast<int>(first));
    bool const alone = CPU_COUNT_S(sizeof own, own.data()) == 1;
    for (std::size_t k = 0; k < i; ++k) {
      same_core = same_core || (alone && CPU_EQUAL_S(sizeof own, own.data(), all[k].cpus.data()));
    }
  }
  for (std::size_t cpu = 0; cpu < kMostCpus; ++cpu) {
    if (has(together, cpu)) shares.cpus.push_back(static_cast<int>(cpu));
  }
  shares.ranks_share_cores = same_core || shares.cpus.size() < all.size();
  return shares;
}

void tune(Plan& plan, CostModel const& costs, int ranks) {
  plan.costs = costs;
  plan.tuning.polls_at_once = costs.polls_at_once;
  // A tuning file may hold a limit above or below those that are allowed today.
  auto const least = plan.tuning.streaming_bytes;
  auto const most = std::max(least, plan.tuning.most_cached_bytes);
  if (costs.is_measured()) plan.tuning.take_bytes = costs.take_bytes;
  plan.tuning.streaming_bytes = std::clamp(costs.streaming_bytes, least, most);
  auto const derived = Selector::derive(plan.tuning, ranks);
  plan.selector = tune(derived, costs, StagingRing(nullptr, plan.tuning.ring_bytes).max_block());
}

/// The plan. Rank 0 alone `decides`: only it looks for measured costs, and its plan counts. The others make one too, so
/// that they see bad settings as it does.
Plan make_plan(Topology const& topology, CommunicatorOptions const& options, int ranks, CoreShares const& shares,
               bool reads_peers, bool decides) {
  auto config = *options.config;
  if (!config.spin && !shares.ranks_share_cores) config.spin = options.spin_alone;
  auto const make = [&](bool small_staging) {
    auto const cores = static_cast<int>(shares.cpus.size());
    auto tuning = make_tuning(topology, config, ranks, cores, shares.ranks_share_cores, small_staging);
    if (ranks > 2 && !shares.ranks_share_cores) tuning.group_ranks = group_size(l3_caches_of(shares.first_cpus));
    tuning.reads_peers = reads_peers;
    return tuning;
  };
  Plan plan;
  plan.tuning = make(options.small_staging);
  plan.selector = Selector::derive(plan.tuning, ranks);
  plan.explains = config.explain;
  if (!decides || !config.tuning_cache || !is_measurable(plan.tuning, ranks)) return plan;
  // A communicator with small staging goes by what those with whole rings have measured, and measures nothing itself.
  auto const known = TuningCache(*config.tuning_cache)
                         .find(describe_machine(topology, make(false), ranks, shares.cpus, shares.distance));
  plan.measures = !known && !options.small_staging && shares.distance > 0;
  if (known) tune(plan, *known, ranks);
  return plan;
}

/// Puts what rank 0 has measured into the tuning cache and the plan.
void adopt_costs(Plan& plan, Topology const& topology, Config const& config, int ranks, CoreShares const& shares) {
  TuningCache(*config.tuning_cache)
      .add(describe_machine(topology, plan.tuning, ranks, shares.cpus, shares.distance), plan.costs);
  tune(plan, plan.costs, ranks);
}

template <typename T>
std::vector<T> tell_all(Bootstrap& bootstrap, T const& mine) {
  auto const raw = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(static_cast<void*>(all.data()), raw.data(), all.size() * sizeof(T));
  return all;
}

}  // namespace

std::unique_ptr<Backend> ShmBackend::create(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                            Surroundings surroundings) {
  auto const& config = *options.config;
  auto const& progress = options.progress;
  auto const rank = bootstrap.rank();
  auto const size = bootstrap.size();
  if (size > kMaxRanks) {
    throw Error(ErrorCode::unsupported, fmt::format("{} ranks on one host; at most {} are supported", size, kMaxRanks));
  }
  auto const whereabouts = tell_all(bootstrap, find_whereabouts());
  for (int peer = 0; peer < size; ++peer) {
    if (std::string_view(whereabouts[peer].host) != whereabouts[0].host) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("ranks 0 and {} are on different hosts; start all ranks on one host", peer));
    }
  }
  // Rank 0's view decides, so that all ranks agree even where caches or variables differ.
  auto shares = count_cores(whereabouts);
  auto const topology = discover_topology();
  struct Answer {
    int reads_peers;
    int tunes;
  };
  Answer mine{config.read_peers ? 1 : 0, config.tuning_cache ? 1 : 0};
  for (auto const& each : whereabouts) mine.reads_peers = mine.reads_peers != 0 && can_reach(each.process) ? 1 : 0;
  auto const answers = tell_all(bootstrap, mine);
  auto const all_read = std::all_of(answers.begin(), answers.end(), [](Answer each) { return each.reads_peers != 0; });
  if (answers.front().tunes != 0 && size > 1 && !shares.ranks_share_cores) {
    shares.distance =
        measure_distance(rank, size, [&](std::span<std::byte const> bytes) { return bootstrap.all_gather(bytes); });
  }
  auto plan = tell_all(bootstrap, make_plan(topology, options, size, shares, all_read, rank == 0)).front();
  // A block has to hold an element of any reduction for every rank.
  auto const least_bytes = std::max<std::size_t>(
      32 * 1024, StagingRing::kBlocks * static_cast<std::size_t>(size + 1) * Reduction::kMaxElementBytes);
  if (plan.tuning.ring_bytes < least_bytes) {
    throw Error(ErrorCode::invalid_argument, fmt::format("WEFT_STAGING_BYTES={} is too small; at least {}K",
                                                         plan.tuning.ring_bytes, (least_bytes + 1023) / 1024));
  }
  if (plan.measures) {
    auto silent = plan;
    silent.explains = false;
    plan.costs = measure(*assemble(bootstrap, silent, progress), plan.selector, plan.tuning, config.timeout);
    if (rank == 0) adopt_costs(plan, topology, config, size, shares);
    plan = tell_all(bootstrap, plan).front();
  }
  auto backend = assemble(bootstrap, plan, progress);
  backend->channel_.set_surroundings(std::move(surroundings));
  backend->join_heaps(bootstrap, options.heap);
  return backend;
}

void ShmBackend::join_heaps(Bootstrap& bootstrap, std::shared_ptr<SharedHeap> const& own) {
  peer_heaps_ = PeerHeaps::join(rank(), size(), own,
                                [&](std::span<std::byte const> bytes) { return bootstrap.all_gather(bytes); });
  if (rank() == 0 && !peer_heaps_.missing().empty()) {
    log(explainer_ ? LogLevel::warn : LogLevel::info,
        fmt::format("shared heaps are not used: {}; give every rank one", peer_heaps_.missing()));
  }
}

std::unique_ptr<ShmBackend> ShmBackend::assemble(Bootstrap& bootstrap, Plan const& plan,
                                                 std::function<void()> const& progress) {
  auto const rank = bootstrap.rank();
  auto const size = bootstrap.size();
  Exchange const exchange = [&](std::span<std::byte const> bytes) { return bootstrap.all_gather(bytes); };
  auto const control_bytes = sizeof(ControlBlock) + Mailbox::bytes(size) + Muster::bytes(size);
  auto control = create_segment(rank, size, control_bytes, sizeof(RankLines), exchange);
  auto const ring_bytes = plan.tuning.ring_bytes;
  auto staging = create_segment(rank, size, ring_bytes * static_cast<std::size_t>(size), ring_bytes, exchange);
  auto const swap_bytes = size == 2 ? plan.tuning.swap_bytes : 0;
  auto swap = swap_bytes > 0 ? create_segment(rank, size, 2 * swap_bytes, swap_bytes, exchange) : nullptr;
  auto const feed_bytes = Feeds::bytes_per_rank(plan.tuning.feed_places);
  auto feeds = create_segment(rank, size, feed_bytes * static_cast<std::size_t>(size), feed_bytes, exchange);
  auto backend = std::make_unique<ShmBackend>(
      Segments{std::move(control), std::move(staging), std::move(swap), std::move(feeds)}, rank, size, plan, progress);
  tell_all(bootstrap, rank);  // every rank has its lines ready
  return backend;
}

ShmBackend::ShmBackend(Segments segments, int rank, int size, Plan const& plan, std::function<void()> const& progress)
    : tuning_(plan.tuning),
      selector_(plan.selector),
      costs_(plan.costs),
      explainer_(plan.explains && rank == 0 ? std::make_unique<Explainer>("shm", size) : nullptr),
      channel_(segments.control, rank, size,
               {tuning_.inline_patience, tuning_.stream_patience, progress, tuning_.polls_at_once}),
      muster_(segments.control, sizeof(ControlBlock) + Mailbox::bytes(size), rank, size,
              [this](int peer) { return channel_.peer_state(peer); }),
      mailbox_(std::move(segments.control), sizeof(ControlBlock), channel_),
      feeds_(std::move(segments.feeds), channel_, tuning_.feed_places, tuning_.places_to_root),
      ring_(std::move(segments.staging), tuning_.ring_bytes),
      swap_(std::move(segments.swap), tuning_.swap_bytes),
      peer_stores_(static_cast<std::size_t>(size)),
      heap_(rank),
      transfers_(static_cast<std::size_t>(size)) {}

void ShmBackend::explain(Call const& call, Collective collective, Memory memory, std::size_t bytes,
                         Choice const& choice) const {
  auto const algorithm = is_copied(call.route)
                             ? fmt::format("{} ({})", to_string(choice.algorithm), describe(call.route))
                             : std::string(to_string(choice.algorithm));
  explainer_->note(call.contract.operation, to_string(memory), algorithm, [&] {
    auto const above = selector_.above(collective, memory, choice);
    auto const limited = choice.up_to != Choice::kUnlimited;
    auto const sizes = describe_bytes(above == 0 ? 0 : above + 1, limited ? std::optional(choice.up_to) : std::nullopt);
    auto const chunks = choice.chunk_bytes > 0 ? fmt::format(", chunks of {}", describe_bytes(choice.chunk_bytes)) : "";
    // Predictions for a limit say why it is there. Those for much shorter calls say nothing, because the lines go
    // through longer calls.
    return fmt::format("{}{}; {}", sizes, chunks, describe(costs_, collective, limited ? choice.up_to : bytes, memory));
  });
}

void ShmBackend::explain_inline(Call const& call, std::size_t most) const {
  explainer_->note(call.contract.operation, "any memory", "inline", [&] {
    return fmt::format("{}, in the cache line that announces the call", describe_bytes(0, most));
  });
}

void ShmBackend::announce_with_scale(Call const& call, void const* payload, std::size_t bytes) {
  std::array<std::byte, kInlineBytes> with_scale{};
  if (bytes > 0) std::memcpy(with_scale.data(), payload, bytes);
  std::memcpy(with_scale.data() + kScaleOffset, &call.scale, sizeof call.scale);
  channel_.announce(call, with_scale.data(), with_scale.size());
}

void ShmBackend::await_announcements() {
  try {
    channel_.await_announcements();
  } catch (Error const& error) {
    // The ranks staged different amounts, so all start again at the beginning of the rings.
    if (error.code() == ErrorCode::mismatch) {
      ring_.reset();
      swap_.reset();
    }
    throw;
  }
}

kernels::Reducer ShmBackend::reducer(Call const& call) noexcept {
  if (call.contract.reduce == ReduceOp::premul_sum) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) std::memcpy(&scales_[peer], channel_.payload(peer) + kScaleOffset, sizeof(double));
    }
    scales_[rank()] = call.scale;
  }
  return {call.contract.reduce, scales_.data(), call.user};
}

kernels::Store ShmBackend::store_for_long(Call const& call, void const* buffer, std::size_t bytes,
                                          bool in_place) noexcept {
  if (call.sequence != stored_.call) {
    stored_ = {call.sequence, reuse_.distance(buffer, bytes)};
  }
  return store_for(std::max(bytes, stored_.distance), in_place);
}

Placement ShmBackend::place(void const* data, std::size_t bytes) const noexcept {
  if (bytes == 0) return {0, Placement::kAnywhere};
  if (peer_heaps_.contains(data, bytes)) return {peer_heaps_.offset(data), Placement::kSharedHeap};
  return heap_.find(data, bytes);
}

std::optional<ShmBackend::Symmetric> ShmBackend::negotiate(Call const& call, std::size_t send_bytes,
                                                           std::span<std::byte const> recv, Needs needs,
                                                           void const* lent) {
  struct Offer {
    Placement send;
    Placement recv;
    std::uint64_t address;  ///< of what this rank lends
    std::uint64_t held;     ///< symmetric segments
  };
  static_assert(sizeof(Offer) <= kScaleOffset);
  std::optional<Symmetric> result(std::in_place);
  result->pins.reset(&heap_);
  Offer offer{};
  offer.held = heap_.pin();
  if (needs == Needs::nothing) offer.send.offset = Placement::kBusy;
  offer.address = needs == Needs::nothing ? 0 : reinterpret_cast<std::uintptr_t>(lent != nullptr ? lent : call.send);
  if (needs != Needs::nothing) offer.send = place(call.send, send_bytes);
  if (needs != Needs::nothing) offer.recv = place(recv.data(), recv.size());
  announce(call, &offer, sizeof offer);
  lend([&] { await_announcements(); });  // peers may have seen all announcements before this rank sees a failure

  std::array<std::uint64_t, kMaxRanks> held;
  Placements sends(held);
  Placements recvs(held);
  for (int peer = 0; peer < size(); ++peer) {
    Offer theirs = offer;
    if (peer != rank()) std::memcpy(&theirs, channel_.payload(peer), sizeof theirs);
    sends.at[peer] = theirs.send;
    recvs.at[peer] = theirs.recv;
    lent_[peer] = theirs.address;
    held[peer] = theirs.held;
  }
  result->has_sends = resolve(sends, result->send);
  if (!result->has_sends && needs != Needs::recv) {
    call.route = why_copied(sends, Route::How::private_send);
    result.reset();
    return result;
  }
  result->has_recvs = resolve(recvs, result->recv);
  if (!result->has_recvs && (needs == Needs::recv || needs == Needs::both)) {
    call.route = why_copied(recvs, Route::How::private_recv);
    result.reset();
    return result;
  }
  result->in_place =
      needs == Needs::both && std::equal(result->send.begin(), result->send.begin() + size(), result->recv.begin());
  return result;
}

int ShmBackend::who_released(std::uint32_t number, Placements const& placements) const noexcept {
  for (int peer = 0; peer < size(); ++peer) {
    if (placements.at[peer].segment != number && !heap_.is_held(number, placements.held[peer])) return peer;
  }
  return -1;
}

/// All ranks decide from the same placements. Buffers are reached only when every rank holds every other's segment, be
/// they one or several. All ranks hold all shared heaps.
bool ShmBackend::resolve(Placements const& placements, Addresses& addresses) const {
  std::uint32_t held_by_all = 0;  // the last segment that was found to be; mostly there is one
  for (int peer = 0; peer < size(); ++peer) {
    auto const& placement = placements.at[peer];
    addresses[peer] = nullptr;
    if (placement.segment == Placement::kAnywhere) continue;
    if (placement.segment == 0) return false;
    if (placement.segment == Placement::kSharedHeap) {
      addresses[peer] = peer_heaps_.address(peer, placement.offset);
      continue;
    }
    if (placement.segment != held_by_all && who_released(placement.segment, placements) >= 0) return false;
    held_by_all = placement.segment;
    addresses[peer] = heap_.address(peer, placement);
  }
  return std::any_of(addresses.begin(), addresses.begin() + size(), [](void const* each) { return each != nullptr; });
}

/// Names the first rank that keeps the ranks from working in one another's buffers.
Route ShmBackend::why_copied(Placements const& placements, Route::How private_how) const {
  for (int peer = 0; peer < size(); ++peer) {
    auto const& placement = placements.at[peer];
    auto const number = static_cast<std::uint8_t>(peer);
    if (placement.segment == Placement::kAnywhere || placement.segment == Placement::kSharedHeap) continue;
    if (placement.segment == 0) {
      if (placement.offset == Placement::kBusy) return {Route::How::in_place, number};
      if (peer_heaps_.missing_rank() < 0) return {private_how, number};
      return {Route::How::no_heap, static_cast<std::uint8_t>(peer_heaps_.missing_rank())};
    }
    auto const without = who_released(placement.segment, placements);
    if (without >= 0) return {Route::How::released, static_cast<std::uint8_t>(without)};
  }
  return {};  // nobody has a buffer
}

void ShmBackend::copy_to_peer(int peer, void* to, void const* from, std::size_t bytes, kernels::Store store) {
  if (kernels::is_past_caches(store)) return kernels::copy(to, from, bytes, store);
  peer_stores_[static_cast<std::size_t>(peer)].fill(bytes, [&](kernels::Store how) {
    kernels::copy(to, from, bytes, how == kernels::Store::cached ? kernels::Store::to_peer : how);
  });
}

void ShmBackend::stage(std::size_t offset, void const* from, std::size_t bytes) {
  ring_stores_.fill(bytes, [&](kernels::Store store) { kernels::copy(ring_.at(rank(), offset), from, bytes, store); });
}

void ShmBackend::reduce_to(Call const& call, std::size_t count, std::array<void const*, kMaxRanks> const& sources,
                           void* destination, kernels::Store store) {
  kernels::reduce({&destination, 1}, {sources.data(), static_cast<std::size_t>(size())}, count, call.contract.dtype,
                  reducer(call), store);
}

void ShmBackend::reduce_from_all(Call const& call, std::size_t count, std::array<void const*, kMaxRanks> const& sources,
                                 void* destination, Manner manner) {
  if (!manner.takes) return reduce_to(call, count, sources, destination, manner.store);
  constexpr std::size_t kBlock = std::size_t{32} << 10;  // still in the first cache, or near it, when it is taken
  auto const block = std::max<std::size_t>(1, kBlock / call.grain());
  std::array<void const*, kMaxRanks> from;
  for (std::size_t first = 0; first < count; first += block) {
    auto const n = std::min(block, count - first);
    auto const offset = first * call.grain();
    for (int peer = 0; peer < size(); ++peer) from[peer] = at(sources[peer], offset);
    reduce_to(call, n, from, at(destination, offset), manner.store);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) kernels::take(from[peer], n * call.grain());
    }
  }
}

/// Vector stores to lines that a peer has read, and this rank has not, wait for each of them. So this rank first stores
/// results for itself, and copies them to the peers block by block while they are in the first cache.
void ShmBackend::reduce_to_all(Call const& call, std::size_t count, std::array<void const*, kMaxRanks> const& sources,
                               std::array<void*, kMaxRanks> const& destinations, kernels::Store store) {
  constexpr std::size_t kBlock = std::size_t{32} << 10;
  constexpr std::size_t kWorthwhile = 2048;
  auto const element = call.grain();
  auto const ranks = static_cast<std::size_t>(size());
  auto const in_place = std::equal(destinations.begin(), destinations.begin() + size(), sources.begin());
  auto const at_once = kernels::is_past_caches(store) || tuning_.share_work || in_place ||
                       count * element < kWorthwhile || element > kBlock;
  if (at_once) {
    std::array<void*, kMaxRanks> kept;
    auto* const end = std::copy_if(destinations.begin(), destinations.begin() + size(), kept.begin(),
                                   [](void const* each) { return each != nullptr; });
    return kernels::reduce({kept.begin(), end}, {sources.data(), ranks}, count, call.contract.dtype, reducer(call),
                           store);
  }
  alignas(kLine) std::array<std::byte, kBlock> own;
  auto const block = kBlock / element;
  std::array<void const*, kMaxRanks> from;
  for (std::size_t first = 0; first < count; first += block) {
    auto const n = std::min(block, count - first);
    auto const offset = first * element;
    for (std::size_t r = 0; r < ranks; ++r) from[r] = at(sources[r], offset);
    void* const mine = destinations[rank()] != nullptr ? at(destinations[rank()], offset) : own.data();
    kernels::reduce({&mine, 1}, {from.data(), ranks}, n, call.contract.dtype, reducer(call), store);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (destinations[r] == nullptr || static_cast<int>(r) == rank()) continue;
      copy_to_peer(static_cast<int>(r), at(destinations[r], offset), mine, n * element, kernels::Store::cached);
    }
  }
}

void ShmBackend::barrier(Call const& call) {
  announce(call);
  await_announcements();
}

void ShmBackend::transfer(Call const& call, std::span<Message const> messages) {
  mailbox_.transfer(call, messages);
}

std::unique_ptr<Transit> ShmBackend::begin(Call const& call, Message const& message) {
  return mailbox_.begin(call, message);
}

void ShmBackend::await(Call const& call, std::function<bool()> const& ready) {
  mailbox_.await(call, ready);
}

void ShmBackend::throw_if_failed() {
  channel_.throw_if_failed();
}

PeerState ShmBackend::peer_state(int rank) {
  return channel_.peer_state(rank);
}

std::shared_ptr<void> ShmBackend::allocate(Call const& call) {
  announce(call);
  await_announcements();
  Exchange const exchange = [&](std::span<std::byte const> bytes) {
    // Through the staging rings, ordered by meet() like any block.
    auto const offset = ring_.take(bytes.size());
    std::memcpy(ring_.at(rank(), offset), bytes.data(), bytes.size());
    channel_.meet();
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(size()));
    for (int peer = 0; peer < size(); ++peer) {
      std::memcpy(all.data() + static_cast<std::size_t>(peer) * bytes.size(), ring_.at(peer, offset), bytes.size());
    }
    return all;
  };
  constexpr std::size_t kPage = 4096;
  auto const part_bytes = (std::max<std::size_t>(call.bytes(), 1) + kPage - 1) / kPage * kPage;
  return heap_.add(create_segment(rank(), size(), part_bytes * static_cast<std::size_t>(size()), part_bytes, exchange),
                   part_bytes);
}

void ShmBackend::abort(std::string const& reason) noexcept {
  channel_.fail(ErrorCode::aborted, fmt::format("aborted by rank {}: {}", channel_.name_of(rank()), reason));
}

}  // namespace weft::shm
