#include "collectives/p2p/simulated_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>

#include "collectives/cases/serial.hpp"
#include "collectives/reference.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kGuard = 32;

Operation operation_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce: return Operation::all_reduce;
    case Kind::reduce: return Operation::reduce;
    case Kind::reduce_scatter: return Operation::reduce_scatter;
    case Kind::reduce_scatter_v: return Operation::reduce_scatter_v;
    case Kind::scan: return Operation::scan;
    case Kind::exscan: return Operation::exscan;
    case Kind::all_gather: return Operation::all_gather;
    case Kind::all_gather_v: return Operation::all_gather_v;
    case Kind::broadcast: return Operation::broadcast;
    case Kind::gather: return Operation::gather;
    case Kind::gather_v: return Operation::gather_v;
    case Kind::scatter: return Operation::scatter;
    case Kind::scatter_v: return Operation::scatter_v;
    case Kind::all_to_all: return Operation::all_to_all;
    case Kind::all_to_all_v: return Operation::all_to_all_v;
    default: return Operation::barrier;
  }
}

/// The kind with unequal parts, or exscan; the same where there is none.
Kind other_of(Kind kind) {
  switch (kind) {
    case Kind::reduce_scatter: return Kind::reduce_scatter_v;
    case Kind::scan: return Kind::exscan;
    case Kind::all_gather: return Kind::all_gather_v;
    case Kind::gather: return Kind::gather_v;
    case Kind::scatter: return Kind::scatter_v;
    case Kind::all_to_all: return Kind::all_to_all_v;
    default: return kind;
  }
}

std::shared_ptr<sim::StackPool> const& stacks() {
  thread_local auto const pool = std::make_shared<sim::StackPool>();
  return pool;
}

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(engine_() % limit); }
  bool one_in(std::size_t chances) { return below(chances) == 0; }
  std::uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

std::size_t roll_count(Chance& chance, std::size_t ranks) {
  std::size_t const counts[] = {0, 1, ranks - 1, ranks, ranks + 1, 2, 7, 13, 31, 61, 127, 251, 509, 64 * ranks};
  return counts[chance.below(std::size(counts))];
}

void roll_reduction(Chance& chance, Case& one, bool keeps_order) {
  auto const partial = one.kind == Kind::scan || one.kind == Kind::exscan;
  do {
    one.dtype = kAllTypes[chance.below(std::size(kAllTypes))];
    one.op = static_cast<ReduceOp>(chance.below(static_cast<std::size_t>(ReduceOp::user) + 1));
  } while (!supports(one.dtype, one.op) || (partial && one.op == ReduceOp::avg) ||
           (one.op == ReduceOp::user && !keeps_order));
  if (one.op == ReduceOp::user) one.user_bytes = chance.one_in(2) ? 8 : 24;
}

Case roll_case(Chance& chance, p2p::Algorithm const& algorithm, int ranks) {
  Case one;
  one.ranks = ranks;
  one.kind = kind_of(algorithm.operation);
  if (algorithm.unequal_parts && chance.one_in(2)) one.kind = other_of(one.kind);
  one.dtype = kAllTypes[chance.below(std::size(kAllTypes))];
  if (reduces(one.kind)) roll_reduction(chance, one, algorithm.keeps_order);
  auto const n = static_cast<std::size_t>(ranks);
  auto const element = size_of(one.dtype);
  auto const lump = one.user_bytes == 0 ? 1 : std::lcm(one.user_bytes, element) / element;
  one.count = roll_count(chance, n) / lump * lump;
  one.root = static_cast<int>(chance.below(n));
  one.in_place = chance.one_in(3) && one.kind != Kind::all_to_all_v;
  // Products in another order may overflow or vanish where those in rank order do not.
  auto const any_order = one.op == ReduceOp::prod && reduces(one.kind) && !algorithm.bitwise;
  one.values = static_cast<Values>(chance.below(any_order ? 2 : 3));
  one.seed = chance.bits();
  if (operation_of(one.kind) != Operation::barrier && has_unequal_parts(operation_of(one.kind))) {
    for (std::size_t row = 0; row < n; ++row) {
      Counts parts(n);
      for (auto& part : parts) part = chance.one_in(4) ? 0 : chance.below(one.count + 1) / lump * lump;
      one.matrix.push_back(parts);
    }
    one.gaps = chance.one_in(2);
  }
  return one;
}

sim::Topology roll_topology(Chance& chance, int ranks) {
  auto topology = sim::Topology::flat(ranks, {2e-6, 1e9, chance.one_in(2) ? 0 : 1e-6});
  for (int per_host = 2; per_host < ranks; ++per_host) {
    if (ranks % per_host != 0 || chance.one_in(2)) continue;
    topology.ranks_per_host = per_host;
    topology.shared_nic = chance.one_in(3);
    topology.rails = !topology.shared_nic && chance.one_in(2);
    if (topology.rails) topology.oversubscription = 2;
    break;
  }
  return topology;
}

sim::Options roll_options(Chance& chance, int ranks) {
  using std::chrono::microseconds;
  sim::Options options;
  options.seed = chance.bits();
  sim::Time const jitters[] = {sim::Time{}, microseconds(1), microseconds(50)};
  options.jitter = jitters[chance.below(3)];
  options.shuffle = true;
  std::size_t const eager[] = {0, 64, std::size_t{1} << 40};
  options.eager_bytes = eager[chance.below(3)];
  options.spoil_buffers = true;
  options.reduction_s_per_byte = chance.one_in(2) ? 0 : 1e-10;
  if (chance.one_in(4)) {
    options.stragglers = {{static_cast<int>(chance.below(static_cast<std::size_t>(ranks))), 10, microseconds(20)}};
  }
  return options;
}

}  // namespace

Kind kind_of(Operation operation) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (operation_of(static_cast<Kind>(kind)) == operation) return static_cast<Kind>(kind);
  }
  return Kind::message;
}

SimulatedRank::SimulatedRank(Case const& one, Contributions const& contributions, int rank)
    : one_(one), contributions_(contributions), rank_(rank), layout_(layout_of(one, rank)) {
  auto const element = size_of(one.dtype);
  send_ = make_region(layout_.place ? std::max(layout_.send, layout_.recv) : layout_.send, 1);
  if (!layout_.place) recv_ = make_region(layout_.recv, 2);
  auto* send = send_.data;
  auto* recv = layout_.place ? send_.data : recv_.data;
  if (layout_.place) (layout_.send_inside ? send : recv) += *layout_.place * element;
  if (layout_.send > 0) contributions.write(rank, 0, layout_.send, send);
  send_.before = send_.memory;
  recv_.before = recv_.memory;

  auto const how = one.how(rank);
  call_.contract.operation = operation_of(one.kind);
  call_.contract.count = one.count;
  call_.contract.dtype = one.dtype;
  call_.contract.reduce = reduces(one.kind) ? one.op : ReduceOp::sum;
  call_.contract.root = static_cast<std::uint32_t>(one.root);
  call_.scale = how.scale();
  if (one.op == ReduceOp::user && reduces(one.kind)) call_.user = how.function();
  call_.send = send;
  call_.recv = recv;
  if (layout_.sends) call_.send_parts = layout_.sends->parts();
  if (layout_.recvs) call_.recv_parts = layout_.recvs->parts();
  call_.own_bytes = (one.kind == Kind::gather_v ? layout_.send : layout_.recv) * element;
}

SimulatedRank::Region SimulatedRank::make_region(std::size_t elements, int salt) const {
  Region region;
  region.memory.resize(2 * kGuard + elements * size_of(one_.dtype));
  for (std::size_t i = 0; i < region.memory.size(); ++i) {
    region.memory[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(salt) * 0x5b + one_.seed) & 0xffU);
  }
  region.data = region.memory.data() + kGuard;
  return region;
}

void SimulatedRank::check(bool bits) const {
  auto const element = size_of(one_.dtype);
  auto regions = std::make_pair(send_, recv_);  // copies, in which what was found right is noted as expected
  auto const* const recv = static_cast<std::byte const*>(call_.recv);
  auto const& region = layout_.place ? send_ : recv_;
  auto& noted = layout_.place ? regions.first : regions.second;
  auto const accept = [&](std::byte const* data, std::size_t length) {
    std::copy(data, data + length, noted.before.begin() + (data - region.memory.data()));
  };
  for (auto const& piece : layout_.pieces) {
    if (piece.count == 0) continue;
    auto const* const got = recv + piece.at * element;
    auto const difference = (bits ? find_difference : find_deviation)(one_, contributions_, piece, got);
    if (difference) fail(fmt::format("recv from element {}, {} elements: {}", piece.at, piece.count, *difference));
    accept(got, piece.count * element);
  }
  if (layout_.spoils_send && layout_.send > 0)
    accept(static_cast<std::byte const*>(call_.send), layout_.send * element);
  check_rest("send", regions.first);
  check_rest("recv", regions.second);
}

void SimulatedRank::check_rest(char const* name, Region const& region) const {
  auto const differs = std::mismatch(region.before.begin(), region.before.end(), region.memory.begin()).first;
  if (differs == region.before.end()) return;
  fail(fmt::format("byte {} of {}'s memory was written, which nobody asked for",
                   differs - region.before.begin() - static_cast<std::ptrdiff_t>(kGuard), name));
}

std::vector<std::byte> SimulatedRank::result() const {
  std::vector<std::byte> all;
  auto const element = size_of(one_.dtype);
  for (auto const& piece : layout_.pieces) {
    auto const* const data = static_cast<std::byte const*>(call_.recv) + piece.at * element;
    all.insert(all.end(), data, data + piece.count * element);
  }
  return all;
}

void SimulatedRank::fail(std::string const& what) const {
  throw std::runtime_error(fmt::format("rank {}: {}", rank_, what));
}

SimulatedRun::SimulatedRun(std::uint64_t seed, std::uint64_t number) {
  auto const all = p2p::algorithms();
  algorithm = &all[number % all.size()];
  auto const ranks = 2 + static_cast<int>(number / all.size() % 16);
  Chance chance(seed * 0x9e3779b97f4a7c15U + number);
  if (algorithm->operation == Operation::barrier) {
    one.ranks = ranks;
  } else {
    one = roll_case(chance, *algorithm, ranks);
  }
  topology = roll_topology(chance, ranks);
  options = roll_options(chance, ranks);
  std::size_t const chunks[] = {1, 48, 64, 256, 4096};
  tuning.chunk_bytes = chunks[chance.below(5)];
  options.stacks = stacks();
}

std::string SimulatedRun::describe() const {
  return fmt::format("{} {}: {}; chunks of {} bytes, {} ranks a host, jitter {} µs, eager up to {} bytes, {} slow",
                     to_string(algorithm->operation), algorithm->name, one.describe(), tuning.chunk_bytes,
                     topology.ranks_per_host, sim::to_seconds(options.jitter) * 1e6, options.eager_bytes,
                     options.stragglers.size());
}

sim::Outcome SimulatedRun::run() const {
  if (algorithm->operation == Operation::barrier) {
    sim::Time last_entry{};
    Call call;
    return sim::simulate(topology, options, [&](Transport& rank) {
      sim::pass(rank, std::chrono::microseconds(7 * rank.rank() % 11));
      last_entry = std::max(last_entry, sim::now(rank));
      p2p::run(*algorithm, rank, call, tuning);
      if (sim::now(rank) < std::chrono::microseconds(10) * (one.ranks > 3)) {
        throw std::runtime_error(fmt::format("rank {} left the barrier before the others entered it", rank.rank()));
      }
    });
  }
  Contributions const contributions(one);
  std::vector<std::unique_ptr<SimulatedRank>> ranks;
  for (int r = 0; r < one.ranks; ++r) ranks.push_back(std::make_unique<SimulatedRank>(one, contributions, r));
  auto outcome = sim::simulate(topology, options, [&](Transport& rank) {
    p2p::run(*algorithm, rank, ranks[static_cast<std::size_t>(rank.rank())]->call(), tuning);
  });
  outcome.rethrow();
  for (auto const& rank : ranks) rank->check(algorithm->bitwise);
  if (algorithm->operation != Operation::all_reduce) return outcome;
  for (auto const& rank : ranks) {
    if (rank->result() != ranks[0]->result()) throw std::runtime_error("ranks have different bits");
  }
  return outcome;
}

}  // namespace weft::test
