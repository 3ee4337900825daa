#include "collectives/hierarchical/hierarchical_backend.hpp"

#include <fmt/format.h>
#include "collectives/merged_call.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "collectives/shm/partition.hpp"
#include "kernels/cpu/reduce.hpp"
#include "weft/error.hpp"

namespace weft::hierarchical {

using shm::at;

namespace {

/// Up to here one exchange between all ranks costs less than several steps.
constexpr std::size_t kFlat = std::size_t{4} << 10;
/// Contributions that are brought together at once.
constexpr std::size_t kWorkspace = std::size_t{4} << 20;
constexpr std::size_t kLeastBlock = std::size_t{4} << 10;

/// A call within a call.
Call inner(Call const& outer, Operation operation, std::size_t count) {
  Call call;
  call.contract = {.count = count, .operation = operation, .dtype = outer.contract.dtype};
  call.timeout = outer.timeout;
  call.on_stream = outer.on_stream;
  return call;
}

/// Bytes that are whole elements and whole grains: a user's elements may be smaller than the data type's, or no
/// multiple.
std::size_t unit_of(Call const& call) noexcept {
  return std::lcm(call.grain(), size_of(call.contract.dtype));
}

/// Counts and offsets of some ranks' ranges.
struct PartArrays {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;

  void add(std::size_t first, std::size_t count) {
    counts.push_back(count);
    offsets.push_back(count > 0 ? first : 0);
  }
  [[nodiscard]] Parts parts() const noexcept { return {counts, offsets}; }
};

}  // namespace

HierarchicalBackend::HierarchicalBackend(std::unique_ptr<Backend> intra, std::unique_ptr<Backend> inter, Layout layout,
                                         HostOrder order, std::unique_ptr<Explainer> explainer)
    : intra_(std::move(intra)),
      inter_(std::move(inter)),
      layout_(std::move(layout)),
      order_(std::move(order)),
      explainer_(std::move(explainer)) {}

Buffer HierarchicalBackend::workspace(std::size_t count, DataType dtype) {
  try {
    return Buffer::host(count, dtype);
  } catch (Error const& error) {
    fail(error.code(), fmt::format("rank {}: {}", rank(), error.what()));
    throw;
  }
}

void HierarchicalBackend::run_inter(Call call, Operation operation) {
  call.sequence = ++inter_calls_;
  try {
    (inter_.get()->*operation)(call);
  } catch (Error const& error) {
    if (error.code() != ErrorCode::mismatch && error.code() != ErrorCode::out_of_memory) {
      intra_->fail(error.code(), error.what());
    }
    throw;
  }
}

void HierarchicalBackend::run_intra(Call call, Operation operation) {
  call.sequence = ++intra_calls_;
  try {
    (intra_.get()->*operation)(call);
  } catch (Error const& error) {
    inter_->fail(error.code(), error.what());
    throw;
  }
}

void HierarchicalBackend::run_flat(Call const& call, Operation operation) {
  if (explainer_) {
    explainer_->note(call.contract.operation, "any memory", "flat", [&] {
      return fmt::format(
          "one exchange between all ranks, for calls of up to {}, scans, and parts that some ranks do "
          "not know",
          describe_bytes(kFlat));
    });
  }
  run_inter(call, operation);
}

void HierarchicalBackend::enter(Call const& call, char const* way) {
  if (explainer_) {
    explainer_->note(call.contract.operation, "any memory", way,
                     [&] { return fmt::format("{} hosts", layout_.hosts().size()); });
  }
  run_inter(call, &Backend::barrier);
}

HierarchicalBackend::Ranges HierarchicalBackend::equal_parts(std::size_t count) const {
  Ranges ranges(ranks());
  for (std::size_t r = 0; r < ranks(); ++r) ranges[r] = {r * count, count};
  return ranges;
}

HierarchicalBackend::Ranges HierarchicalBackend::even_split(Call const& call) const {
  Ranges ranges;
  auto const unit = unit_of(call);
  auto const elements = unit / size_of(call.contract.dtype);
  for (std::size_t r = 0; r < ranks(); ++r) {
    auto const part = shm::part_of(call.bytes() / unit, r, ranks(), unit);
    ranges.push_back({part.first * elements, part.count * elements});
  }
  return ranges;
}

HierarchicalBackend::Ranges HierarchicalBackend::parts_of(Call const& call, Parts const& parts) const {
  auto const element = size_of(call.contract.dtype);
  Ranges ranges;
  for (int r = 0; r < layout_.size(); ++r) {
    auto const part = call.part(parts, r);
    ranges.push_back({part.offset / element, part.length / element});
  }
  return ranges;
}

void HierarchicalBackend::move(Call const& call, void const* send, Ranges const& gives, void* recv,
                               Ranges const& gets) {
  auto const run = [&](bool local, std::vector<int> const& peers, auto runner) {
    PartArrays given;
    PartArrays got;
    for (int const peer : peers) {
      auto const index = static_cast<std::size_t>(peer);
      auto const here = layout_.is_local(peer) == local;
      given.add(gives[index].first, here ? gives[index].count : 0);
      got.add(gets[index].first, here ? gets[index].count : 0);
    }
    auto exchange = inner(call, weft::Operation::all_to_all_v, 0);
    exchange.send = send;
    exchange.recv = recv;
    exchange.send_parts = given.parts();
    exchange.recv_parts = got.parts();
    (this->*runner)(exchange, &Backend::all_to_all);
  };
  std::vector<int> everybody;
  for (int r = 0; r < layout_.size(); ++r) everybody.push_back(r);
  run(false, everybody, &HierarchicalBackend::run_inter);
  run(true, layout_.locals(), &HierarchicalBackend::run_intra);
}

void HierarchicalBackend::share(Call const& call, void* recv, Ranges const& parts) {
  auto const element = size_of(call.contract.dtype);
  auto const mine = static_cast<std::size_t>(rank());
  // Between hosts: each part to one rank of every other host.
  PartArrays given;
  PartArrays got;
  for (int peer = 0; peer < layout_.size(); ++peer) {
    auto const index = static_cast<std::size_t>(peer);
    auto const& theirs = layout_.hosts()[static_cast<std::size_t>(layout_.host_of(peer))];
    auto const sends = !layout_.is_local(peer) && layout_.courier(rank(), theirs) == peer;
    auto const gets = !layout_.is_local(peer) && layout_.courier(peer, layout_.locals()) == rank();
    given.add(parts[mine].first, sends ? parts[mine].count : 0);
    got.add(parts[index].first, gets ? parts[index].count : 0);
  }
  auto exchange = inner(call, weft::Operation::all_to_all_v, 0);
  exchange.send = recv;
  exchange.recv = recv;
  exchange.send_parts = given.parts();
  exchange.recv_parts = got.parts();
  run_inter(exchange, &Backend::all_to_all);

  // Inside: as many parts at a time as there are ranks, each from the rank that has it.
  auto const& locals = layout_.locals();
  if (locals.size() == 1) return;
  for (auto const& host : layout_.hosts()) {
    for (std::size_t next = 0; next < host.size(); next += locals.size()) {
      PartArrays shared;
      std::size_t total = 0;
      for (std::size_t i = 0; i < locals.size(); ++i) {
        auto const part = next + i < host.size() ? parts[static_cast<std::size_t>(host[next + i])] : Range{};
        shared.add(part.first, part.count);
        total += part.count;
      }
      if (total == 0) continue;
      auto const own = static_cast<std::size_t>(layout_.local_index(rank()));
      auto gather = inner(call, weft::Operation::all_gather_v, total);
      gather.send = at(recv, shared.offsets[own] * element);
      gather.recv = recv;
      gather.recv_parts = shared.parts();
      run_intra(gather, &Backend::all_gather);
    }
  }
}

std::vector<double> HierarchicalBackend::share_scales(Call const& call) {
  std::vector<double> all(ranks(), 1);
  if (call.contract.reduce != ReduceOp::premul_sum) return all;
  auto tell = inner(call, weft::Operation::all_gather, 1);
  tell.contract.dtype = DataType::f64;
  tell.send = &call.scale;
  tell.recv = all.data();
  run_inter(tell, &Backend::all_gather);
  return all;
}

bool HierarchicalBackend::combines_by_host(Call const& call) const noexcept {
  if (layout_.hosts().size() == ranks()) return false;  // nobody to combine with
  auto const dtype = call.contract.dtype;
  auto const op = call.contract.reduce;
  return is_exact(dtype, op) || order_.applies_to(dtype, op);
}

void HierarchicalBackend::combine_inside(Call const& call, void const* send, Ranges const& parts, std::size_t first,
                                         std::size_t block, void* partials) {
  auto const element = size_of(call.contract.dtype);
  auto const& locals = layout_.locals();
  std::size_t round = 0;
  for (auto const& host : layout_.hosts()) {
    for (std::size_t next = 0; next < host.size(); next += locals.size(), ++round) {
      PartArrays shared;
      std::size_t total = 0;
      for (std::size_t i = 0; i < locals.size(); ++i) {
        auto const part = next + i < host.size() ? parts[static_cast<std::size_t>(host[next + i])] : Range{};
        auto const count = part.count > first ? std::min(block, part.count - first) : 0;
        shared.add(part.first + first, count);
        total += count;
      }
      if (total == 0) continue;
      auto scatter = inner(call, weft::Operation::reduce_scatter_v, total);
      scatter.contract.reduce = HostOrder::levels(call.contract.reduce).inside;
      scatter.scale = call.scale;
      scatter.send = send;
      scatter.recv = at(partials, round * block * element);
      scatter.send_parts = shared.parts();
      run_intra(scatter, &Backend::reduce_scatter);
    }
  }
}

void HierarchicalBackend::exchange_partials(Call const& call, Ranges const& parts, std::size_t first, std::size_t block,
                                            void const* partials, void* arrived) {
  auto const left = [&](int owner) {
    auto const& part = parts[static_cast<std::size_t>(owner)];
    return part.count > first ? std::min(block, part.count - first) : 0;
  };
  PartArrays given;
  PartArrays got;
  for (int peer = 0; peer < layout_.size(); ++peer) {
    auto const& theirs = layout_.hosts()[static_cast<std::size_t>(layout_.host_of(peer))];
    auto const gives = !layout_.is_local(peer) && layout_.courier(peer, layout_.locals()) == rank();
    auto const gets = !layout_.is_local(peer) && layout_.courier(rank(), theirs) == peer;
    given.add(gives ? layout_.round_of(peer) * block : 0, gives ? left(peer) : 0);
    got.add(static_cast<std::size_t>(layout_.host_of(peer)) * block, gets ? left(rank()) : 0);
  }
  auto exchange = inner(call, weft::Operation::all_to_all_v, 0);
  exchange.send = partials;
  exchange.recv = arrived;
  exchange.send_parts = given.parts();
  exchange.recv_parts = got.parts();
  run_inter(exchange, &Backend::all_to_all);
}

void HierarchicalBackend::combine_by_host(Call const& call, void const* send, Ranges const& parts, void* result) {
  auto const element = size_of(call.contract.dtype);
  auto const hosts = layout_.hosts().size();
  std::size_t longest = 0;
  for (auto const& part : parts) longest = std::max(longest, part.count);
  if (longest == 0) return;
  // Equal on all ranks, whose hosts may need different numbers of rounds.
  auto const blocks = layout_.most_rounds() + hosts;
  auto const block = std::min(longest, std::max(kLeastBlock, kWorkspace / blocks / 64 * 64) / element);
  auto const partials = workspace(block * layout_.most_rounds(), call.contract.dtype);
  auto const arrived = workspace(block * hosts, call.contract.dtype);
  auto const& mine = parts[static_cast<std::size_t>(rank())];
  for (std::size_t first = 0; first < longest; first += block) {
    combine_inside(call, send, parts, first, block, partials.data());
    exchange_partials(call, parts, first, block, partials.data(), arrived.data());
    auto const count = mine.count > first ? std::min(block, mine.count - first) : 0;
    std::vector<void const*> sources;
    for (std::size_t host = 0; host < hosts; ++host) {
      auto const own = host == static_cast<std::size_t>(layout_.host_of(rank()));
      sources.push_back(own ? at(partials.data(), layout_.round_of(rank()) * block * element)
                            : at(arrived.data(), host * block * element));
    }
    void* const destination = at(result, first * element);
    kernels::reduce({&destination, 1}, sources, count, call.contract.dtype,
                    {HostOrder::levels(call.contract.reduce).between, order_.weights().data(), {}});
  }
}

void HierarchicalBackend::combine(Call const& call, void const* send, Ranges const& parts, void* result) {
  if (combines_by_host(call)) return combine_by_host(call, send, parts, result);
  combine_in_rank_order(call, send, parts, result);
}

void HierarchicalBackend::combine_in_rank_order(Call const& call, void const* send, Ranges const& parts, void* result) {
  auto const element = size_of(call.contract.dtype);
  auto const mine = static_cast<std::size_t>(rank());
  std::size_t longest = 0;
  for (auto const& part : parts) longest = std::max(longest, part.count);
  if (longest == 0) return;
  auto const unit = unit_of(call);
  auto const block = std::min(longest, std::max(kLeastBlock, kWorkspace / ranks() / 64 * 64) / unit * unit / element);
  auto const scales = share_scales(call);
  auto const gathered = workspace(block * ranks() * element, DataType::u8);
  for (std::size_t first = 0; first < longest; first += block) {
    auto const left = [&](Range const& part) { return part.count > first ? std::min(block, part.count - first) : 0; };
    Ranges gives(ranks());
    Ranges gets(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (r == mine) continue;  // this rank's own contribution is read where it lies
      gives[r] = {parts[r].first + first, left(parts[r])};
      gets[r] = {r * block, left(parts[mine])};
    }
    move(call, send, gives, gathered.data(), gets);
    std::vector<void const*> sources;
    for (std::size_t r = 0; r < ranks(); ++r) {
      sources.push_back(r == mine ? at(send, (parts[mine].first + first) * element)
                                  : at(static_cast<void const*>(gathered.data()), r * block * element));
    }
    void* const destination = at(result, first * element);
    kernels::reduce({&destination, 1}, sources, left(parts[mine]) * element / call.grain(), call.contract.dtype,
                    {call.contract.reduce, scales.data(), call.user});
  }
}

void HierarchicalBackend::all_reduce(Call const& call) {
  if (call.bytes() <= kFlat) return run_flat(call, &Backend::all_reduce);
  enter(call, combines_by_host(call) ? "combined inside hosts first" : "combined in rank order");
  auto const parts = even_split(call);
  auto const mine = parts[static_cast<std::size_t>(rank())];
  combine(call, call.send, parts, at(call.recv, mine.first * size_of(call.contract.dtype)));
  share(call, call.recv, parts);
}

void HierarchicalBackend::reduce(Call const& call) {
  if (call.bytes() <= kFlat) return run_flat(call, &Backend::reduce);
  enter(call, combines_by_host(call) ? "combined inside hosts first" : "combined in rank order");
  auto const parts = even_split(call);
  auto const mine = parts[static_cast<std::size_t>(rank())];
  auto const own = workspace(std::max<std::size_t>(mine.count, 1), call.contract.dtype);
  combine(call, call.send, parts, own.data());
  Ranges gives(ranks());
  gives[call.contract.root] = {0, mine.count};
  move(call, own.data(), gives, call.recv, call.is_root(rank()) ? parts : Ranges(ranks()));
}

void HierarchicalBackend::reduce_scatter(Call const& call) {
  if (call.bytes() <= kFlat / ranks()) return run_flat(call, &Backend::reduce_scatter);
  enter(call, combines_by_host(call) ? "combined inside hosts first" : "combined in rank order");
  combine(call, call.send, parts_of(call, call.send_parts), call.recv);
}

void HierarchicalBackend::all_gather(Call const& call) {
  if (call.bytes() <= kFlat / ranks()) return run_flat(call, &Backend::all_gather);
  enter(call);
  auto const parts = parts_of(call, call.recv_parts);
  auto const mine = parts[static_cast<std::size_t>(rank())];
  auto* const own = at(call.recv, mine.first * size_of(call.contract.dtype));
  if (own != call.send && mine.count > 0) kernels::copy(own, call.send, mine.count * size_of(call.contract.dtype));
  share(call, call.recv, parts);
}

void HierarchicalBackend::broadcast(Call const& call) {
  if (call.bytes() <= kFlat) return run_flat(call, &Backend::broadcast);
  enter(call);
  // Every rank gets a part, then all share theirs: the root's host sends the buffer about once, not once per host.
  auto const parts = even_split(call);
  auto const mine = static_cast<std::size_t>(rank());
  auto const root = static_cast<std::size_t>(call.contract.root);
  auto const is_root = call.is_root(rank());
  Ranges gets(ranks());
  if (!is_root) gets[root] = parts[mine];
  auto gives = is_root ? parts : Ranges(ranks());
  gives[mine] = {};
  move(call, call.send, gives, call.recv, gets);
  share(call, call.recv, parts);
}

void HierarchicalBackend::gather(Call const& call) {
  if (call.contract.operation == weft::Operation::gather_v || call.bytes() <= kFlat / ranks()) {
    return run_flat(call, &Backend::gather);
  }
  enter(call);
  Ranges gives(ranks());
  gives[call.contract.root] = {0, call.contract.count};
  move(call, call.send, gives, call.recv, call.is_root(rank()) ? equal_parts(call.contract.count) : Ranges(ranks()));
}

void HierarchicalBackend::scatter(Call const& call) {
  if (call.contract.operation == weft::Operation::scatter_v || call.bytes() <= kFlat / ranks()) {
    return run_flat(call, &Backend::scatter);
  }
  enter(call);
  Ranges gets(ranks());
  gets[call.contract.root] = {0, call.contract.count};
  move(call, call.send, call.is_root(rank()) ? equal_parts(call.contract.count) : Ranges(ranks()), call.recv, gets);
}

void HierarchicalBackend::all_to_all(Call const& call) {
  if (call.contract.operation == weft::Operation::all_to_all_v || call.bytes() <= kFlat / ranks()) {
    return run_flat(call, &Backend::all_to_all);
  }
  enter(call);
  auto const parts = equal_parts(call.contract.count);
  if (call.send != call.recv) return move(call, call.send, parts, call.recv, parts);
  auto const bytes = call.bytes() * ranks();
  auto const copy = workspace(bytes, DataType::u8);
  kernels::copy(copy.data(), call.send, bytes);
  move(call, copy.data(), parts, call.recv, parts);
}

void HierarchicalBackend::scan(Call const& call) {
  run_flat(call, &Backend::scan);
}

void HierarchicalBackend::merged(MergedCall const& calls) {
  if (explainer_) explainer_->note(calls, "any memory", "merged, flat", "copied to and from one plain call");
  weft::run_flat(*this, calls, rank(), static_cast<int>(ranks()), flat_,
                 [&](Call const& flat) { calls.run_plain(*this, flat); });
}

void HierarchicalBackend::barrier(Call const& call) {
  enter(call);
}

void HierarchicalBackend::transfer(Call const& call, std::span<Message const> messages) {
  std::vector<Message> local;
  std::vector<Message> remote;
  for (auto message : messages) {
    if (!layout_.is_local(message.peer)) {
      remote.push_back(message);
      continue;
    }
    message.peer = layout_.local_index(message.peer);
    local.push_back(message);
  }
  if (remote.empty()) return intra_->transfer(call, local);
  if (local.empty()) return inter_->transfer(call, remote);
  // Neither may wait for the other: a ring over all ranks needs both at once.
  std::exception_ptr failure;
  std::thread inside([&] {
    try {
      intra_->transfer(call, local);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  struct Joined {
    std::thread& thread;
    ~Joined() { thread.join(); }
  };
  {
    Joined const joined{inside};
    inter_->transfer(call, remote);
  }
  if (failure) std::rethrow_exception(failure);
}

std::shared_ptr<void> HierarchicalBackend::allocate(Call const& call) {
  enter(call);
  std::shared_ptr<void> memory;
  auto local = call;
  local.sequence = ++intra_calls_;
  std::uint8_t exhausted = 0;
  try {
    memory = intra_->allocate(local);
  } catch (Error const& error) {
    if (error.code() != ErrorCode::out_of_memory) {
      inter_->fail(error.code(), error.what());
      throw;
    }
    exhausted = 1;
  }
  std::vector<std::uint8_t> all(ranks());
  auto tell = inner(call, weft::Operation::all_gather, 1);
  tell.contract.dtype = DataType::u8;
  tell.send = &exhausted;
  tell.recv = all.data();
  run_inter(tell, &Backend::all_gather);
  auto const without = std::find(all.begin(), all.end(), 1);
  if (without == all.end()) return memory;
  throw Error(ErrorCode::out_of_memory, fmt::format("{}: rank {}'s host has no {} bytes of shared memory left; free "
                                                    "memory or ask for less",
                                                    describe(call), without - all.begin(), call.bytes()));
}

void HierarchicalBackend::fail(ErrorCode code, std::string const& reason) noexcept {
  inter_->fail(code, reason);
  intra_->fail(code, reason);
}

void HierarchicalBackend::abort(std::string const& reason) noexcept {
  fail(ErrorCode::aborted, reason);
}

}  // namespace weft::hierarchical
