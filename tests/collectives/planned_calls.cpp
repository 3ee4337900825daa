#include "collectives/planned_calls.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 3, 14, 100, 257, 1009, 5003, 20011, 90001};

std::byte* take(std::byte*& next, std::size_t bytes, std::size_t misalign) {
  auto* const start = next + misalign;
  next += (bytes + misalign + 15) / 16 * 16;
  return start;
}

}  // namespace

std::vector<Planned> Plan::calls(int ranks) {
  std::vector<Planned> kinds(1 + below(3));
  for (auto& call : kinds) {
    call.kind = static_cast<PlannedKind>(below(kPlannedKinds));
    call.dtype = kAllTypes[below(std::size(kAllTypes))];
    call.op = kAllOps[below(std::size(kAllOps))];
    if (!supports(call.dtype, call.op)) call.op = ReduceOp::prod;
    if ((call.kind == PlannedKind::scan || call.kind == PlannedKind::exscan) && call.op == ReduceOp::avg)
      call.op = ReduceOp::prod;
    call.root = static_cast<int>(below(static_cast<std::size_t>(ranks)));
  }
  auto const most = 1 + below(std::size(kSizes));
  std::vector<Planned> result(1 + below(20));
  for (auto& call : result) {
    call = kinds[below(kinds.size())];
    call.count = kSizes[below(most)];
    call.in_place = call.kind == PlannedKind::all_reduce && coin();
  }
  return result;
}

std::size_t arena_bytes(std::vector<Planned> const& calls, int ranks) {
  std::size_t bytes = 64;
  for (auto const& call : calls) {
    auto const shapes = call.shapes(ranks);
    bytes += (shapes.send + shapes.recv) * size_of(call.dtype) + 128;
  }
  return bytes;
}

std::vector<Work> make_calls(Communicator& world, std::vector<Planned> const& calls, std::byte* arena,
                             std::uint64_t seed, CollectiveOptions const& how) {
  auto* next = arena;
  std::vector<Work> works;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    auto const& call = calls[i];
    auto const shapes = call.shapes(world.size());
    auto const element = size_of(call.dtype);
    BufferView const send{take(next, shapes.send * element, i % 3 == 0 ? element : 0), shapes.send, call.dtype};
    BufferView recv{take(next, shapes.recv * element, 0), shapes.recv, call.dtype};
    if (call.in_place) recv = send;
    store_values(make_values(shapes.send, call.dtype, call.op, world.rank(), seed + i), send);
    switch (call.kind) {
      case PlannedKind::all_reduce: works.push_back(world.all_reduce(send, recv, call.op, how)); break;
      case PlannedKind::reduce: works.push_back(world.reduce(send, recv, call.op, call.root, how)); break;
      case PlannedKind::reduce_scatter: works.push_back(world.reduce_scatter(send, recv, call.op, how)); break;
      case PlannedKind::all_gather: works.push_back(world.all_gather(send, recv, how)); break;
      case PlannedKind::broadcast: works.push_back(world.broadcast(send, call.root, how)); break;
      case PlannedKind::gather: works.push_back(world.gather(send, recv, call.root, how)); break;
      case PlannedKind::scatter: works.push_back(world.scatter(send, recv, call.root, how)); break;
      case PlannedKind::all_to_all: works.push_back(world.all_to_all(send, recv, how)); break;
      case PlannedKind::scan: works.push_back(world.scan(send, recv, call.op, how)); break;
      case PlannedKind::exscan: works.push_back(world.exscan(send, recv, call.op, how)); break;
      case PlannedKind::barrier: works.push_back(world.barrier(how)); break;
    }
  }
  return works;
}

}  // namespace weft::test
