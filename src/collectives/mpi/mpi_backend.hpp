#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/envelope.hpp"
#include "collectives/explainer.hpp"
#include "collectives/host_order.hpp"
#include "collectives/mpi/channel.hpp"
#include "core/mpi_members.hpp"
#include "kernels/cpu/reduce.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft::mpi {

/// Collectives by the non-blocking ones of any MPI-3 library, on a communicator of their own.
///
/// MPI moves bytes; Weft reduces them. Every element's contributions are brought to one rank, which combines them by
/// kernels::reduce in rank order: the bits are those of every other back end, whatever algorithms the MPI library uses,
/// and every type and operator works that the kernels know. An all_reduce so moves 2(n−1)/n·B bytes a rank, the least
/// possible.
///
/// All data passes through MpiMemory in blocks, two in flight: a call that fails or times out leaves no MPI operation
/// behind that could touch the caller's buffers, and no count comes near 2^31.
class MpiBackend final : public Backend {
 public:
  /// Collective over the bootstrap, whose ranks are `members`.
  /// Reductions of all ranks that depend on the order go by `order`, where it has hosts.
  [[nodiscard]] static std::unique_ptr<Backend> create(Bootstrap& bootstrap,
                                                       std::shared_ptr<MpiMembers const> const& members,
                                                       CommunicatorOptions const& options, RankHosts const& hosts,
                                                       HostOrder order = HostOrder());

  MpiBackend(std::shared_ptr<MpiCommunicator> communicator, std::size_t block, CommunicatorOptions const& options,
             RankHosts const& hosts, HostOrder order);

  void all_reduce(Call const& call) override;
  void reduce_scatter(Call const& call) override;
  void all_gather(Call const& call) override;
  void broadcast(Call const& call) override;
  void reduce(Call const& call) override;
  void gather(Call const& call) override;
  void scatter(Call const& call) override;
  void all_to_all(Call const& call) override;
  void scan(Call const& call) override;
  void barrier(Call const& call) override;
  void merged(MergedCall const& calls) override;
  /// Copying so little costs less than a message of its own.
  [[nodiscard]] MergeLimits merge_limits() const noexcept override {
    return {std::size_t{32} << 10, std::size_t{1} << 20};
  }
  void transfer(Call const& call, std::span<Message const> messages) override;
  std::unique_ptr<Transit> begin(Call const& call, Message const& message) override;
  void await(Call const& call, std::function<bool()> const& ready) override;
  void throw_if_failed() override;
  [[nodiscard]] PeerState peer_state(int rank) override;
  std::shared_ptr<void> allocate(Call const& call) override;
  void abort(std::string const& reason) noexcept override;
  void fail(ErrorCode code, std::string const& reason) noexcept override { channel_.fail(code, reason); }

 private:
  /// What a rank gives and gets where only bytes move; ranges of its own buffers, one for every rank.
  struct Transfers {
    std::vector<ByteRange> gives;
    std::vector<ByteRange> gets;

    explicit Transfers(std::size_t ranks) : gives(ranks), gets(ranks) {}
  };
  class Passage;  // a message on its way
  class KeptPassage;
  /// The range of a buffer that one block gives to a rank, or gets from it.
  using Piece = std::function<ByteRange(int rank)>;

  [[nodiscard]] int rank() const noexcept { return channel_.rank(); }
  [[nodiscard]] int size() const noexcept { return channel_.size(); }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  [[nodiscard]] std::byte* sent_to(Slot& slot, int rank) const noexcept {
    return slot.send + static_cast<std::size_t>(rank) * block_;
  }
  [[nodiscard]] std::byte* got_from(Slot& slot, int rank) const noexcept {
    return slot.recv + static_cast<std::size_t>(rank) * block_;
  }
  /// How the current call combines; valid until the next one.
  [[nodiscard]] kernels::Reducer reducer(Call const& call);
  /// The most whole grains that fit a block, in bytes.
  [[nodiscard]] std::size_t block_for(Call const& call) const noexcept;

  /// For each of `blocks` blocks, begin(index, slot, request) starts an MPI operation on the slot and end(index, slot)
  /// takes what it brought. A block begins before the one before it ends, so that data travels while results are
  /// computed.
  template <typename Begin, typename End>
  void pipeline(Call const& call, std::size_t blocks, Begin begin, End end);

  /// Sets the slot's counts, and copies what is to be sent. This rank's own piece stays where it is.
  void stage(Call const& call, Slot& slot, Piece const& gives, Piece const& gets) const;
  /// Copies every other rank's bytes to where they belong in recv.
  void take(Call const& call, Slot& slot, Piece const& gets) const;
  void start_all_to_all(Call const& call, Slot& slot, MPI_Request& request);
  void start_all_gather(Call const& call, Slot& slot, MPI_Request& request);
  /// To and from call.contract.root, which keeps its own piece.
  void start_gather(Call const& call, Slot& slot, std::byte const* mine, int bytes, MPI_Request& request);
  void start_scatter(Call const& call, Slot& slot, int bytes, MPI_Request& request);
  /// Starts the operation and waits for it.
  void run(Call const& call, char const* name, std::function<int(MPI_Request&)> const& begin);

  /// destination_k[i] = op over `sources`, the first ranks'.
  void combine(Call const& call, std::span<void const* const> sources, std::size_t bytes,
               std::span<void* const> destinations);
  /// destination_k[i] = op over the first `contributors` ranks' pieces in `slot`, this rank's taken from `own`.
  void reduce_pieces(Call const& call, Slot& slot, void const* own, int contributors, std::size_t bytes,
                     std::span<void* const> destinations);

  void reduce_inline(Call const& call);
  void reduce_gathered(Call const& call);
  void reduce_in_two_phases(Call const& call);
  // The second phase: combines this rank's piece of a block and brings the results to the ranks that get them.
  void share_results(Call const& call, Slot& slot, Piece const& piece);     ///< all_reduce
  void collect_results(Call const& call, Slot& slot, Piece const& piece);   ///< reduce
  void deal_out_results(Call const& call, Slot& slot, Piece const& piece);  ///< scan, exscan
  [[nodiscard]] bool keeps_result(Call const& call, int rank) const noexcept;

  void exchange(Call const& call, Transfers const& transfers, bool equal);
  void start_exchange(Call const& call, Slot& slot, MPI_Request& request);
  /// Compares the parts of a call whose parts only some ranks know; returns the longest. @throws Error{mismatch} on
  /// every rank where what one gives is not what the other expects.
  [[nodiscard]] std::size_t agree_on_parts(Call const& call, Transfers const& transfers);

  /// Tells which MPI functions run `call`, where that was asked for.
  void explain(Call const& call, char const* algorithm, char const* functions) const;

  std::size_t block_;
  HostOrder hosts_;
  std::unique_ptr<Explainer> explainer_;  // rank 0's
  std::vector<double> scales_;
  Channel channel_;
  ReturnedEnvelopes returned_envelopes_;
  std::vector<std::byte> flat_;  // buffers of merged calls, side by side
};

template <typename Begin, typename End>
void MpiBackend::pipeline(Call const& call, std::size_t blocks, Begin begin, End end) {
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  for (std::size_t index = 0; index <= blocks; ++index) {
    if (index < blocks) begin(index, channel_.slot(index), requests[index % 2]);
    if (index == 0) continue;
    channel_.wait(call, requests[(index - 1) % 2]);
    end(index - 1, channel_.slot(index - 1));
  }
}

}  // namespace weft::mpi
