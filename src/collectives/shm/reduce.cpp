// reduce over shared memory:
//   fed      no synchronisation, unless a giver is many slots ahead: the others write B, the root reads n·B and
//            writes B;
//   and all algorithms of all_reduce, whose result the root alone keeps.
#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::reduce(Call const& call) {
  select(
      call, Collective::reduce, call.bytes(),
      [&] {
        return negotiate(call, call.bytes(), whole_recv(call, call.is_root(rank()) ? call.bytes() : 0), Needs::both);
      },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm != Algorithm::fed) return all_reduce_by(call, choice, buffers, announced);
        is_short(announced, call.bytes()) ? reduce_short(call) : reduce_fed(call, announced);
      });
}

void ShmBackend::reduce_short(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto const bytes = call.bytes();
  feed_short(call, [&] {
    if (rank() != root)
      return feeds_.give_short(root, bytes, [&](std::byte* place) { kernels::copy(place, call.send, bytes); });
    std::array<void const*, kMaxRanks> sources;
    for (int peer = 0; peer < size(); ++peer) sources[peer] = peer == root ? call.send : feeds_.get_short(peer, bytes);
    reduce_to(call, bytes / call.grain(), sources, call.recv, kernels::Store::cached);
  });
}

void ShmBackend::reduce_fed(Call const& call, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const store = store_for(call, call.bytes(), call.send == call.recv);
  std::array<void const*, kMaxRanks> sources;
  auto const block = call.whole_grains(Feeds::block_bytes(call.bytes()));
  auto const way = Feeds::way_of(call.bytes());
  feed(call, announced, Feeds::Readers::root, call.bytes(), block, [&](std::size_t first, std::size_t length) {
    if (rank() != root) {
      return feeds_.give(root, length, way, call.grain(), [&](std::byte* place, ByteRange part, kernels::Store how) {
        kernels::copy(place + part.offset, at(call.send, first + part.offset), part.length, how);
      });
    }
    if (way == Feeds::Way::at_once) {
      for (int peer = 0; peer < size(); ++peer)
        sources[peer] = peer == root ? at(call.send, first) : feeds_.get_whole(peer, length);
      return reduce_to(call, length / call.grain(), sources, at(call.recv, first), store);
    }
    for (std::size_t done = 0, ready = 0; done < length; done = ready) {
      ready = length;
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != root) ready = std::min(ready, feeds_.await(peer, length, done));
      }
      for (int peer = 0; peer < size(); ++peer)
        sources[peer] = at(peer == root ? at(call.send, first) : feeds_.find(peer, length), done);
      reduce_to(call, (ready - done) / call.grain(), sources, at(call.recv, first + done), store);
    }
  });
}

}  // namespace weft::shm
