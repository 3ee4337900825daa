// gather, scatter and all_to_all over several hosts: one exchange between hosts and one inside, of whole parts.
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
  auto const run = [&](bool local, std::vector<int> const& peers, Runner runner) {
    PartArrays given;
    PartArrays got;
    for (int const peer : peers) {
      auto const index = static_cast<std::size_t>(peer);
      auto const here = layout_.is_local(peer) == local;
      given.add(gives[index].first, here ? gives[index].count : 0);
      got.add(gets[index].first, here ? gets[index].count : 0);
    }
    exchange(call, send, given, recv, got, runner);
  };
  std::vector<int> everybody;
  for (int r = 0; r < layout_.size(); ++r) everybody.push_back(r);
  run(false, everybody, &HierarchicalBackend::run_inter);
  run(true, layout_.locals(), &HierarchicalBackend::run_intra);
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
