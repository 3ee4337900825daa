// gather, scatter and all_to_all over MPI: an announcement, then one exchange for each block of the longest part. With
// unequal parts only some ranks know the sizes, so two more small exchanges come first, in which all ranks compare what
// they give and expect; every rank sees the same contradiction if there is one.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/mpi/mpi_backend.hpp"
#include "collectives/partition.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::mpi {

namespace {

/// What a rank found when it compared its parts with the others'.
struct Finding {
  std::uint64_t longest = 0;  ///< bytes of its longest part
  std::uint64_t contradicted = 0;
  std::uint64_t from = 0;
  std::uint64_t gives = 0;
  std::uint64_t gets = 0;
};

/// Block `index` of a part that is moved in blocks.
ByteRange block_of(ByteRange part, std::size_t index, std::size_t block) {
  return {part.offset + index * block, overlap(part, index * block, block)};
}

}  // namespace

void MpiBackend::gather(Call const& call) {
  auto const root = static_cast<std::size_t>(call.contract.root);
  auto const equal = call.contract.operation == Operation::gather;
  Transfers transfers(ranks());
  transfers.gives[root] = {0, equal ? call.bytes() : call.own_bytes};
  for (int peer = 0; peer < size() && call.is_root(rank()); ++peer) {
    transfers.gets[static_cast<std::size_t>(peer)] = call.part(call.recv_parts, peer);
  }
  exchange(call, transfers, equal);
}

void MpiBackend::scatter(Call const& call) {
  auto const root = static_cast<std::size_t>(call.contract.root);
  auto const equal = call.contract.operation == Operation::scatter;
  Transfers transfers(ranks());
  transfers.gets[root] = {0, equal ? call.bytes() : call.own_bytes};
  for (int peer = 0; peer < size() && call.is_root(rank()); ++peer) {
    transfers.gives[static_cast<std::size_t>(peer)] = call.part(call.send_parts, peer);
  }
  exchange(call, transfers, equal);
}

void MpiBackend::all_to_all(Call const& call) {
  Transfers transfers(ranks());
  for (int peer = 0; peer < size(); ++peer) {
    auto const index = static_cast<std::size_t>(peer);
    transfers.gives[index] = call.part(call.send_parts, peer);
    transfers.gets[index] = call.part(call.recv_parts, peer);
  }
  exchange(call, transfers, call.contract.operation == Operation::all_to_all);
}

void MpiBackend::exchange(Call const& call, Transfers const& transfers, bool equal) {
  explain(call, "staged",
          call.contract.operation == Operation::gather || call.contract.operation == Operation::gather_v
              ? "MPI_Igatherv"
          : call.contract.operation == Operation::scatter || call.contract.operation == Operation::scatter_v
              ? "MPI_Iscatterv"
              : "MPI_Ialltoallv");
  channel_.announce(call);
  auto const longest = equal ? call.bytes() : agree_on_parts(call, transfers);
  auto const me = static_cast<std::size_t>(rank());
  auto const own = transfers.gives[me];
  auto* const destination = at(call.recv, transfers.gets[me].offset);
  if (own.length > 0 && destination != at(call.send, own.offset)) {
    kernels::copy(destination, at(call.send, own.offset), own.length);
  }
  pipeline(
      call, ceil_div(longest, block_),
      [&](std::size_t index, Slot& slot, MPI_Request& request) {
        stage(
            call, slot,
            [&](int peer) { return block_of(transfers.gives[static_cast<std::size_t>(peer)], index, block_); },
            [&](int peer) { return block_of(transfers.gets[static_cast<std::size_t>(peer)], index, block_); });
        start_exchange(call, slot, request);
      },
      [&](std::size_t index, Slot& slot) {
        take(call, slot,
             [&](int peer) { return block_of(transfers.gets[static_cast<std::size_t>(peer)], index, block_); });
      });
}

void MpiBackend::start_exchange(Call const& call, Slot& slot, MPI_Request& request) {
  auto const root = static_cast<int>(call.contract.root);
  switch (call.contract.operation) {
    case Operation::gather:
    case Operation::gather_v:
      return start_gather(call, slot, sent_to(slot, root), slot.send_counts[static_cast<std::size_t>(root)], request);
    case Operation::scatter:
    case Operation::scatter_v:
      return start_scatter(call, slot, slot.recv_counts[static_cast<std::size_t>(root)], request);
    default: return start_all_to_all(call, slot, request);
  }
}

std::size_t MpiBackend::agree_on_parts(Call const& call, Transfers const& transfers) {
  auto& slot = channel_.slot(0);
  std::vector<std::uint64_t> given(ranks());
  for (std::size_t peer = 0; peer < ranks(); ++peer) given[peer] = transfers.gives[peer].length;
  std::memcpy(slot.send, given.data(), given.size() * sizeof given[0]);
  run(call, "MPI_Ialltoall", [&](MPI_Request& started) {
    return MPI_Ialltoall(slot.send, sizeof given[0], MPI_BYTE, slot.recv, sizeof given[0], MPI_BYTE, channel_.handle(),
                         &started);
  });
  std::memcpy(given.data(), slot.recv, given.size() * sizeof given[0]);

  Finding mine;
  for (std::size_t peer = ranks(); peer-- > 0;) {
    mine.longest = std::max(mine.longest, given[peer]);
    if (given[peer] != transfers.gets[peer].length)
      mine = {mine.longest, 1, peer, given[peer], transfers.gets[peer].length};
  }
  std::memcpy(slot.send, &mine, sizeof mine);
  run(call, "MPI_Iallgather", [&](MPI_Request& started) {
    return MPI_Iallgather(slot.send, sizeof mine, MPI_BYTE, slot.recv, sizeof mine, MPI_BYTE, channel_.handle(),
                          &started);
  });
  std::vector<Finding> findings(ranks());
  std::memcpy(findings.data(), slot.recv, findings.size() * sizeof mine);
  std::size_t longest = 0;
  std::size_t worst = 0;  // the rank with the contradiction whose giver is the lowest
  for (std::size_t to = 0; to < ranks(); ++to) {
    longest = std::max(longest, findings[to].longest);
    auto const& best = findings[worst];
    if (findings[to].contradicted > best.contradicted ||
        (findings[to].contradicted == 1 && findings[to].from < best.from)) {
      worst = to;
    }
  }
  auto const& found = findings[worst];
  if (found.contradicted == 1) {
    throw Error(ErrorCode::mismatch,
                fmt::format("{}: rank {} gives rank {} {} bytes, which expects {}; nothing was moved, make the counts "
                            "equal",
                            describe(call), found.from, worst, found.gives, found.gets));
  }
  return longest;
}

}  // namespace weft::mpi
