// gather and scatter over shared memory, between the root and n - 1 others, parts of B bytes:
//   fed      no synchronisation, unless who gives is many slots ahead: it writes what it gives, who gets it reads and
//            writes that;
//   direct   2 synchronisations: gather's ranks write to the root's receive buffer, or the root reads their send
//            buffers; scatter's read the root's send buffer.
#include "collectives/shm/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {
namespace {

/// Parts from which a gather's ranks write to the root at once. Smaller ones stay in caches, where it costs the root
/// more to take back lines that others wrote than to read theirs.
constexpr std::size_t kPushed = std::size_t{512} << 10;

}  // namespace

void ShmBackend::gather(Call const& call) {
  if (call.contract.operation == Operation::gather_v) return gather_v(call);
  auto const root = static_cast<int>(call.contract.root);
  auto const pushed = call.bytes() >= kPushed;
  auto const result_bytes = rank() == root ? call.bytes() * static_cast<std::size_t>(size()) : 0;
  select(
      call, Collective::rooted, call.bytes(),
      [&] {
        return pushed ? negotiate(call, 0, result_bytes, Needs::recv) : negotiate(call, call.bytes(), 0, Needs::send);
      },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm != Algorithm::direct) return gather_fed(call, announced);
        pushed ? gather_pushed(call, *buffers) : gather_pulled(call, *buffers);
      });
}

void ShmBackend::keep_part(Call const& call, void* part) const noexcept {
  if (call.bytes() > 0 && part != call.send)
    kernels::copy(part, call.send, call.bytes(), store_for(call.bytes(), false));
}

void ShmBackend::gather_fed(Call const& call, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const store = store_for(call.bytes(), false);
  auto const part = [&](int of) { return at(call.recv, static_cast<std::size_t>(of) * call.bytes()); };
  feed(call, announced, call.bytes(), Feeds::kSlotBytes, [&](std::size_t first, std::size_t length) {
    if (rank() != root) {
      kernels::copy(feeds_.fill(length), at(call.send, first), length);
      return feeds_.give(root);
    }
    for (int step = 1, peer = root + 1; step < size(); ++step, ++peer) {
      if (peer == size()) peer = 0;  // a division takes longer than a small part
      kernels::copy(part(peer) + first, feeds_.get(peer, length), length, store);
    }
  });
  if (rank() == root) keep_part(call, part(root));
}

/// All ranks write to the root at once; it alone pulling would take as long as all of them together.
void ShmBackend::gather_pushed(Call const& call, Symmetric const& buffers) {
  keep_part(call, at(buffers.recv[call.contract.root], static_cast<std::size_t>(rank()) * call.bytes()));
  channel_.meet();
}

void ShmBackend::gather_pulled(Call const& call, Symmetric const& buffers) {
  for (int peer = 0; peer < size() && call.is_root(rank()); ++peer) {
    auto* const part = at(call.recv, static_cast<std::size_t>(peer) * call.bytes());
    if (part != buffers.send[peer])
      kernels::copy(part, buffers.send[peer], call.bytes(), store_for(call.bytes(), false));
  }
  channel_.meet();  // the others may write their send buffers once they are read
}

void ShmBackend::scatter(Call const& call) {
  if (call.contract.operation == Operation::scatter_v) return scatter_v(call);
  auto const all_bytes = call.bytes() * static_cast<std::size_t>(size());
  // As gather: by what a rank gets, of which two ranks' root sends twice as much.
  select(
      call, Collective::rooted, 2 * call.bytes(),
      [&] { return negotiate(call, call.is_root(rank()) ? all_bytes : 0, 0, Needs::send); },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm == Algorithm::direct) return scatter_direct(call, *buffers);
        scatter_fed(call, announced);
      });
}

/// A slot holds a piece of every other rank's part.
void ShmBackend::scatter_fed(Call const& call, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const others = static_cast<std::size_t>(std::max(1, size() - 1));
  auto const store = store_for(call.bytes(), false);
  auto const index = [&](int rank) { return static_cast<std::size_t>(rank < root ? rank : rank - 1); };
  auto const part = [&](int of) { return at(call.send, static_cast<std::size_t>(of) * call.bytes()); };
  feed(call, announced, call.bytes(), scattered_bytes_, [&](std::size_t first, std::size_t length) {
    if (rank() != root) {
      auto const* const pieces = feeds_.get(root, length * others);
      return kernels::copy(at(call.recv, first), pieces + index(rank()) * length, length, store);
    }
    auto* const pieces = feeds_.fill(length * others);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != root) kernels::copy(pieces + index(peer) * length, part(peer) + first, length);
    }
    feeds_.give(Feeds::kEverybody);
  });
  if (rank() == root && call.bytes() > 0 && call.recv != part(root))
    kernels::copy(call.recv, part(root), call.bytes(), store);
}

void ShmBackend::scatter_direct(Call const& call, Symmetric const& buffers) {
  auto const* const part = at(buffers.send[call.contract.root], static_cast<std::size_t>(rank()) * call.bytes());
  if (call.recv != part) kernels::copy(call.recv, part, call.bytes(), store_for(call.bytes(), false));
  channel_.meet();
}

}  // namespace weft::shm
