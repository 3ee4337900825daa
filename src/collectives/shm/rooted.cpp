// gather and scatter over shared memory, between the root and n - 1 others, parts of B bytes:
//   fed      no synchronisation, unless the giver is many slots ahead: it writes what it gives, a reader reads and
//            writes that;
//   direct   1 synchronisation, then the root waits for the others: gather's ranks write to the root's receive buffer,
//            scatter's read the root's send buffer, all at once; the root alone would take as long as all together.
//            Where two ranks take lines, a gather's root reads the other's send buffer if it can reach that as well;
//   fetched  the same with private buffers of the root's, by the kernel.
#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::gather(Call const& call) {
  if (call.contract.operation == Operation::gather_v) return gather_v(call);
  auto const all_bytes = call.bytes() * static_cast<std::size_t>(size());
  select(
      call, Collective::gather, all_bytes,
      [&] {
        auto const is_root = call.is_root(rank());
        return negotiate(call, is_root ? 0 : call.bytes(), whole_recv(call, is_root ? all_bytes : 0), Needs::recv,
                         call.recv);
      },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm == Algorithm::direct) return gather_direct(call, buffers);
        if (choice.algorithm == Algorithm::fetched) return lend([&] { gather_direct(call, nullptr); });
        is_short(announced, call.bytes()) ? gather_short(call) : gather_fed(call, announced);
      });
}

void ShmBackend::copy_part(Call const& call, void* to, void const* from) noexcept {
  if (call.bytes() > 0 && to != from) kernels::copy(to, from, call.bytes(), store_for(call, call.bytes(), false));
}

void ShmBackend::gather_short(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto const bytes = call.bytes();
  feed_short(call, [&] {
    if (rank() != root)
      return feeds_.give_short(root, bytes, [&](std::byte* place) { kernels::copy(place, call.send, bytes); });
    auto const part = [&](int of) { return at(call.recv, static_cast<std::size_t>(of) * bytes); };
    if (part(root) != call.send) kernels::copy(part(root), call.send, bytes);  // while the others write theirs
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != root) kernels::copy(part(peer), feeds_.get_short(peer, bytes), bytes);
    }
  });
}

void ShmBackend::gather_fed(Call const& call, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const store = store_for(call, call.bytes(), false);
  auto const part = [&](int of) { return at(call.recv, static_cast<std::size_t>(of) * call.bytes()); };
  auto const block = Feeds::block_bytes(call.bytes());
  auto const way = Feeds::way_of(call.bytes());
  feed(call, announced, Feeds::Readers::root, call.bytes(), block, [&](std::size_t first, std::size_t length) {
    if (rank() != root) {
      return feeds_.give(root, length, way, 1, [&](std::byte* place, ByteRange range, kernels::Store how) {
        kernels::copy(place + range.offset, at(call.send, first + range.offset), range.length, how);
      });
    }
    auto const own = at(call.send, first);
    if (part(root) != call.send && length > 0)  // while the others write theirs
      kernels::copy(part(root) + first, own, length, store);
    for (int step = 1, peer = root + 1; step < size(); ++step, ++peer) {
      if (peer == size()) peer = 0;  // a division takes longer than a small part
      feeds_.get(peer, length, way, [&](std::byte const* place, ByteRange range) {
        kernels::copy(part(peer) + first + range.offset, place + range.offset, range.length, store);
      });
    }
  });
}

void ShmBackend::gather_direct(Call const& call, Symmetric const* buffers) {
  auto const root = static_cast<int>(call.contract.root);
  auto const offset = static_cast<std::size_t>(rank()) * call.bytes();
  // What L2 does not hold is there sooner when both ranks work.
  auto const root_takes = buffers != nullptr && buffers->has_sends && size() == 2 && takes(call.bytes()) &&
                          call.bytes() <= tuning_.l2_bytes / 2;
  if (root_takes) {
    if (rank() == root) {
      auto const manner = manner_of(call, call.bytes(), false);
      auto const part = [&](int of) { return at(call.recv, static_cast<std::size_t>(of) * call.bytes()); };
      copy_part(call, part(root), call.send);
      if (call.bytes() > 0) copy_from_peer(peer(), part(peer()), buffers->send[peer()], call.bytes(), manner);
    }
    return channel_.meet_readers();  // the peer may write its send buffer again
  }
  if (buffers != nullptr && rank() != root) {
    copy_to_peer(root, at(buffers->recv[root], offset), call.send, call.bytes(), store_for(call, call.bytes(), false));
  } else if (rank() == root) {
    copy_part(call, at(call.recv, offset), call.send);
  } else {
    push(call, root, offset, call.send, call.bytes());
  }
  channel_.report_to(root);
}

void ShmBackend::scatter(Call const& call) {
  if (call.contract.operation == Operation::scatter_v) return scatter_v(call);
  auto const all_bytes = call.bytes() * static_cast<std::size_t>(size());
  select(
      call, Collective::scatter, all_bytes,
      [&] { return negotiate(call, call.is_root(rank()) ? all_bytes : 0, {}, Needs::send); },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm == Algorithm::direct) return scatter_direct(call, buffers);
        if (choice.algorithm == Algorithm::fetched) return scatter_direct(call, nullptr);
        is_short(announced, all_bytes - call.bytes()) ? scatter_short(call) : scatter_fed(call, announced);
      });
}

void ShmBackend::scatter_short(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto const bytes = call.bytes();
  auto const all_bytes = bytes * static_cast<std::size_t>(size() - 1);
  feed_short(call, [&] {
    if (rank() != root) {
      auto const index = static_cast<std::size_t>(rank() < root ? rank() : rank() - 1);
      return kernels::copy(call.recv, feeds_.get_short(root, all_bytes) + index * bytes, bytes);
    }
    auto const* part = static_cast<std::byte const*>(call.send);
    feeds_.give_short(Feeds::kEverybody, all_bytes, [&](std::byte* place) {
      for (int peer = 0; peer < size(); ++peer, part += bytes) {
        if (peer == root) continue;
        kernels::copy(place, part, bytes);
        place += bytes;
      }
    });
    auto const* const own = at(call.send, static_cast<std::size_t>(root) * bytes);
    if (own != call.recv) kernels::copy(call.recv, own, bytes);
  });
}

/// Each content that is given holds a piece of every other rank's part.
void ShmBackend::scatter_fed(Call const& call, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const others = static_cast<std::size_t>(std::max(1, size() - 1));
  auto const store = store_for(call, call.bytes(), false);
  // whole lines of a part
  auto const block = std::min(Feeds::block_bytes(call.bytes()), Feeds::kMostBytes / others / kLine * kLine);
  // Pieces of several ranks are given at once: in steps, one rank would wait longer for the others to wait less.
  auto const way = others > 1 ? Feeds::Way::at_once : Feeds::way_of(call.bytes());
  auto const index = [&](int rank) { return static_cast<std::size_t>(rank < root ? rank : rank - 1); };
  auto const part = [&](int of) { return at(call.send, static_cast<std::size_t>(of) * call.bytes()); };
  feed(call, announced, Feeds::Readers::all, call.bytes(), block, [&](std::size_t first, std::size_t length) {
    auto const of_piece = [&](ByteRange range) { return others > 1 ? ByteRange{0, length} : range; };
    if (rank() != root) {
      return feeds_.get(root, length * others, way, [&](std::byte const* pieces, ByteRange range) {
        auto const [offset, bytes] = of_piece(range);
        kernels::copy(at(call.recv, first + offset), pieces + index(rank()) * length + offset, bytes, store);
      });
    }
    feeds_.give(Feeds::kEverybody, length * others, way, 1,
                [&](std::byte* pieces, ByteRange range, kernels::Store how) {
                  auto const [offset, bytes] = of_piece(range);
                  for (int peer = 0; peer < size(); ++peer) {
                    if (peer == root) continue;
                    kernels::copy(pieces + index(peer) * length + offset, part(peer) + first + offset, bytes, how);
                  }
                });
  });
  if (rank() == root) copy_part(call, call.recv, part(root));
}

void ShmBackend::scatter_direct(Call const& call, Symmetric const* buffers) {
  auto const root = static_cast<int>(call.contract.root);
  auto const offset = static_cast<std::size_t>(rank()) * call.bytes();
  if (buffers != nullptr) {
    auto const* const source = at(buffers->send[root], offset);
    if (call.bytes() > 0 && call.recv != source)
      copy_from_peer(root, call.recv, source, call.bytes(),
                     manner_of(store_for(call, call.bytes(), false), copies_take(call.bytes())));
  } else if (rank() == root) {
    copy_part(call, call.recv, at(call.send, offset));
  } else {
    fetch(call, root, offset, call.recv, call.bytes());
  }
  channel_.end_reading();
  channel_.report_to(root);  // it may write its send buffer once all have read it
}

}  // namespace weft::shm
