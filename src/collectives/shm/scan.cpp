// scan and exscan over shared memory: rank r combines the contributions of ranks 0 to r (exscan: r − 1) itself.
//   inline   1 synchronisation, B ≤ 56;
//   staged   1 synchronisation a block: writes 2B, reads up to (n + 1)B.
#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::scan(Call const& call) {
  auto const contributors = static_cast<std::size_t>(rank()) + (call.contract.operation == Operation::scan ? 1U : 0U);
  std::array<void const*, kMaxRanks> sources;
  auto const combine = [&](void* destination, std::size_t bytes) {
    kernels::reduce({&destination, 1}, {sources.data(), contributors}, bytes / call.grain(), call.contract.dtype,
                    reducer(call));
  };
  if (call.bytes() <= inline_bytes(call)) {
    if (explainer_) explain_inline(call, inline_bytes(call));
    alignas(kLine) std::array<std::byte, kLine> mine{};
    std::memcpy(mine.data(), call.send, call.bytes());
    announce(call, mine.data(), call.bytes());
    await_announcements();
    for (int peer = 0; peer < rank(); ++peer) sources[peer] = channel_.payload(peer);
    sources[rank()] = mine.data();
    if (contributors > 0) combine(call.recv, call.bytes());
    return;
  }
  auto const& choice = selector_.by_memory(Collective::scan, call.bytes(), Memory::other);
  if (explainer_) explain(call, Collective::scan, Memory::other, call.bytes(), choice);
  auto const block = call.whole_grains(choice.chunk_bytes);
  for (std::size_t first = 0; first < call.bytes(); first += block) {
    auto const length = std::min(block, call.bytes() - first);
    auto const offset = ring_.take(length);
    stage(offset, at(call.send, first), length);
    exchange_block(call, first > 0);
    for (int peer = 0; peer <= rank(); ++peer) sources[peer] = ring_.at(peer, offset);
    if (contributors > 0) combine(at(call.recv, first), length);
  }
}

}  // namespace weft::shm
