#include "collectives/mpi/mpi_backend.hpp"

#include <fmt/format.h>
#include "collectives/merged_call.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/partition.hpp"

namespace weft::mpi {

namespace {

/// Bytes of a slot's send or receive area: enough for MPI's long-message protocols to pay off, and little enough that a
/// block is still in the caches when it is reduced.
constexpr std::size_t kArea = std::size_t{1} << 20;
constexpr std::size_t kLeastBlock = std::size_t{4} << 10;

std::size_t block_bytes(Config const& config, int ranks) {
  auto const area = config.staging_bytes.value_or(kArea);
  auto const block = std::max(area / static_cast<std::size_t>(ranks), kLeastBlock) / 64 * 64;
  return std::min(block, (std::size_t{1} << 30) / static_cast<std::size_t>(ranks) / 64 * 64);
}

}  // namespace

std::unique_ptr<MpiBackend> MpiBackend::create(Bootstrap& bootstrap, std::shared_ptr<MpiMembers const> const& members,
                                               CommunicatorOptions const& options, RankHosts const& hosts,
                                               HostOrder order) {
  // Several threads may create communicators at once; rank 0's clock gives each of them its own tag.
  struct Start {
    std::uint64_t block;
    std::uint64_t tag;
  };
  auto const clock = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  Start const mine{block_bytes(*options.config, bootstrap.size()), clock % 32768};
  auto const all = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  Start first{};
  std::memcpy(&first, all.data(), sizeof first);
  auto communicator = MpiCommunicator::of(*members->parent, members->ranks, static_cast<int>(first.tag));
  return std::make_unique<MpiBackend>(std::move(communicator), first.block, options, hosts, std::move(order));
}

MpiBackend::MpiBackend(std::shared_ptr<MpiCommunicator> communicator, std::size_t block,
                       CommunicatorOptions const& options, RankHosts const& hosts, HostOrder order)
    : block_(block), hosts_(std::move(order)), channel_(std::move(communicator), block, options, hosts) {
  if (options.config->explain && rank() == 0) explainer_ = std::make_unique<Explainer>("mpi", size());
}

void MpiBackend::explain(Call const& call, char const* algorithm, char const* functions) const {
  if (!explainer_) return;
  explainer_->note(call.contract.operation, "any memory", algorithm,
                   [&] { return fmt::format("{}, blocks of {} a rank", functions, describe_bytes(block_)); });
}

std::size_t MpiBackend::block_for(Call const& call) const noexcept {
  return call.whole_grains(block_);
}

kernels::Reducer MpiBackend::reducer(Call const& call) {
  scales_.clear();
  for (int peer = 0; peer < size(); ++peer) scales_.push_back(channel_.announcement_of(peer).scale);
  return {call.contract.reduce, scales_.data(), call.user};
}

void MpiBackend::stage(Call const& call, Slot& slot, Piece const& gives, Piece const& gets) const {
  for (int peer = 0; peer < size(); ++peer) {
    auto const index = static_cast<std::size_t>(peer);
    auto const given = peer == rank() ? ByteRange{} : gives(peer);
    if (given.length > 0) kernels::copy(sent_to(slot, peer), at(call.send, given.offset), given.length);
    slot.send_counts[index] = static_cast<int>(given.length);
    slot.recv_counts[index] = peer == rank() ? 0 : static_cast<int>(gets(peer).length);
  }
}

void MpiBackend::take(Call const& call, Slot& slot, Piece const& gets) const {
  for (int peer = 0; peer < size(); ++peer) {
    auto const got = peer == rank() ? ByteRange{} : gets(peer);
    if (got.length > 0) kernels::copy(at(call.recv, got.offset), got_from(slot, peer), got.length);
  }
}

void MpiBackend::start_all_to_all(Call const& call, Slot& slot, MPI_Request& request) {
  channel_.start(
      call, "MPI_Ialltoallv",
      [&](MPI_Request& started) {
        return MPI_Ialltoallv(slot.send, slot.send_counts.data(), slot.send_offsets.data(), MPI_BYTE, slot.recv,
                              slot.recv_counts.data(), slot.recv_offsets.data(), MPI_BYTE, channel_.handle(), &started);
      },
      request);
}

void MpiBackend::start_all_gather(Call const& call, Slot& slot, MPI_Request& request) {
  channel_.start(
      call, "MPI_Iallgatherv",
      [&](MPI_Request& started) {
        return MPI_Iallgatherv(slot.send, slot.recv_counts[static_cast<std::size_t>(rank())], MPI_BYTE, slot.recv,
                               slot.recv_counts.data(), slot.recv_offsets.data(), MPI_BYTE, channel_.handle(),
                               &started);
      },
      request);
}

void MpiBackend::start_gather(Call const& call, Slot& slot, std::byte const* mine, int bytes, MPI_Request& request) {
  auto const root = static_cast<int>(call.contract.root);
  channel_.start(
      call, "MPI_Igatherv",
      [&](MPI_Request& started) {
        return MPI_Igatherv(mine, bytes, MPI_BYTE, slot.recv, slot.recv_counts.data(), slot.recv_offsets.data(),
                            MPI_BYTE, root, channel_.handle(), &started);
      },
      request);
}

void MpiBackend::start_scatter(Call const& call, Slot& slot, int bytes, MPI_Request& request) {
  auto const root = static_cast<int>(call.contract.root);
  channel_.start(
      call, "MPI_Iscatterv",
      [&](MPI_Request& started) {
        return MPI_Iscatterv(slot.send, slot.send_counts.data(), slot.send_offsets.data(), MPI_BYTE,
                             got_from(slot, root), bytes, MPI_BYTE, root, channel_.handle(), &started);
      },
      request);
}

void MpiBackend::run(Call const& call, char const* name, std::function<int(MPI_Request&)> const& begin) {
  MPI_Request request = MPI_REQUEST_NULL;
  channel_.start(call, name, begin, request);
  channel_.wait(call, request);
}

void MpiBackend::merged(MergedCall const& calls) {
  if (explainer_) explainer_->note(calls, "any memory", "merged, flat", "copied to and from one plain call");
  run_flat(*this, calls, rank(), size(), flat_, [&](Call const& flat) { calls.run_plain(*this, flat); });
}

void MpiBackend::barrier(Call const& call) {
  channel_.announce(call);
}

std::shared_ptr<void> MpiBackend::allocate(Call const& call) {
  channel_.announce(call);
  Buffer memory;
  std::uint64_t status = 0;
  try {
    memory = Buffer::host(call.contract.count, call.contract.dtype);
  } catch (Error const&) {
    status = 1;
  }
  auto& slot = channel_.slot(0);
  std::memcpy(slot.send, &status, sizeof status);
  run(call, "MPI_Iallgather", [&](MPI_Request& started) {
    return MPI_Iallgather(slot.send, sizeof status, MPI_BYTE, slot.recv, sizeof status, MPI_BYTE, channel_.handle(),
                          &started);
  });
  for (int peer = 0; peer < size(); ++peer) {
    std::memcpy(&status, slot.recv + static_cast<std::size_t>(peer) * sizeof status, sizeof status);
    if (status != 0) {
      throw Error(ErrorCode::out_of_memory, fmt::format("{}: rank {} has no {} bytes left; free memory or ask for less",
                                                        describe(call), peer, call.bytes()));
    }
  }
  auto* const data = memory.data();
  return {std::make_shared<Buffer>(std::move(memory)), data};
}

void MpiBackend::abort(std::string const& reason) noexcept {
  channel_.fail(ErrorCode::aborted, fmt::format("aborted by rank {}: {}", rank(), reason));
}

}  // namespace weft::mpi
