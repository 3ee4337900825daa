// gather, scatter and all_to_all over several hosts: one exchange of whole parts between hosts, and one inside hosts.
#include <numeric>

#include "collectives/hierarchical/crossing.hpp"
#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"

namespace weft::hierarchical {

void HierarchicalBackend::exchange(Call const& call, void const* send, PartArrays const& given, void* recv,
                                   PartArrays const& got, Runner runner) {
  auto exchanged = inner(call, weft::Operation::all_to_all_v, 0);
  exchanged.send = send;
  exchanged.recv = recv;
  exchanged.send_parts = given.parts();
  exchanged.recv_parts = got.parts();
  (this->*runner)(exchanged, &Backend::all_to_all);
}

void HierarchicalBackend::move(Call const& call, void const* send, Ranges const& gives, void* recv,
                               Ranges const& gets) {
  auto const parts = [&](bool local, std::vector<int> const& peers, Ranges const& ranges) {
    PartArrays some;
    for (int const peer : peers) {
      auto const& range = ranges[static_cast<std::size_t>(peer)];
      some.add(range.first, layout_.is_local(peer) == local ? range.count : 0);
    }
    return some;
  };
  std::vector<int> everybody(ranks());
  std::iota(everybody.begin(), everybody.end(), 0);
  // Parts for other hosts go straight to their ranks, while parts for local ranks move inside the host.
  auto const given = parts(false, everybody, gives);
  auto const got = parts(false, everybody, gets);
  Crossing crossing(*this, call);
  crossing.begin(send, given, recv, got);
  auto const& locals = layout_.locals();
  exchange(call, send, parts(true, locals, gives), recv, parts(true, locals, gets), &HierarchicalBackend::run_intra);
  crossing.wait();
}

void HierarchicalBackend::gather(Call const& call) {
  if (call.contract.operation == weft::Operation::gather_v || is_flat(call)) {
    return run_flat(call, &Backend::gather);
  }
  enter(call);
  Ranges gives(ranks());
  gives[call.contract.root] = {0, call.contract.count};
  move(call, call.send, gives, call.recv, call.is_root(rank()) ? equal_parts(call.contract.count) : Ranges(ranks()));
}

void HierarchicalBackend::scatter(Call const& call) {
  if (call.contract.operation == weft::Operation::scatter_v || is_flat(call)) {
    return run_flat(call, &Backend::scatter);
  }
  enter(call);
  Ranges gets(ranks());
  gets[call.contract.root] = {0, call.contract.count};
  move(call, call.send, call.is_root(rank()) ? equal_parts(call.contract.count) : Ranges(ranks()), call.recv, gets);
}

void HierarchicalBackend::all_to_all(Call const& call) {
  if (call.contract.operation == weft::Operation::all_to_all_v || is_flat(call)) {
    return run_flat(call, &Backend::all_to_all);
  }
  enter(call);
  auto const parts = equal_parts(call.contract.count);
  if (call.send != call.recv) return move(call, call.send, parts, call.recv, parts);
  auto const bytes = call.bytes() * ranks();
  auto const copy = workspace(bytes, DataType::u8);
  work_.copy(copy.data(), call.send, bytes);
  move(call, copy.data(), parts, call.recv, parts);
}

}  // namespace weft::hierarchical
