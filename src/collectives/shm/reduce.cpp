// reduce over shared memory:
//   fed      no synchronisation, unless who gives is many slots ahead: the others write B, the root reads n·B and
//            writes B;
//   and all algorithms of all_reduce, whose result the root alone keeps.
#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::reduce(Call const& call) {
  select(
      call, Collective::reduce, call.bytes(),
      [&] { return negotiate(call, call.bytes(), call.is_root(rank()) ? call.bytes() : 0, Needs::both); },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm == Algorithm::fed) return reduce_fed(call, announced);
        all_reduce_by(call, choice, buffers, announced);
      });
}

void ShmBackend::reduce_fed(Call const& call, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const store = store_for(call, call.bytes(), call.send == call.recv);
  std::array<void const*, kMaxRanks> sources;
  auto const block = call.whole_grains(Feeds::block_bytes(call.bytes()));
  feed(call, announced, call.bytes(), block, [&](std::size_t first, std::size_t length) {
    if (rank() != root) {
      kernels::copy(feeds_.fill(length), at(call.send, first), length);
      return feeds_.give(root);
    }
    for (int peer = 0; peer < size(); ++peer)
      sources[peer] = peer == root ? at(call.send, first) : feeds_.get(peer, length);
    reduce_to(call, length / call.grain(), sources, at(call.recv, first), store);
  });
}

}  // namespace weft::shm
