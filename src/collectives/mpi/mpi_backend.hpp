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

/// Collectives through the non-blocking collectives of any MPI-3 library, on an MPI communicator of their own.
///
/// MPI moves bytes; Weft reduces them. All contributions to an element are brought to one rank, which combines them
/// with kernels::reduce in rank order. So results have the same bits as with every other back end, whatever algorithms
/// the MPI library uses, and all types and operators of the kernels work. An all_reduce moves 2(n−1)/n·B bytes per
/// rank, the least possible.
///
/// All data passes through MpiMemory in blocks, two in flight. So a call that fails or times out leaves no MPI
/// operation behind that could touch the caller's buffers, and no count comes near 2^31.
class MpiBackend final : public Backend {
 public:
  /// Collective over the bootstrap, whose ranks are `members`. If `order` has hosts, reductions over all ranks whose
  /// result depends on the order combine in that order.
  [[nodiscard]] static std::unique_ptr<MpiBackend> create(Bootstrap& bootstrap,
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
  /// Up to these sizes, copying a call's data costs less than a message of its own.
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

  /// For a rank that waits for `peer` in `inside`, a call of another level: see Channel::look_around_inside().
  void look_around(Call const& inside, int peer, std::function<bool()> const& ready, std::chrono::nanoseconds waited) {
    channel_.look_around_inside(inside, peer, ready, waited);
  }

 private:
  /// What a rank gives and gets in a call that only moves bytes: ranges of its own buffers, one for every rank.
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
  /// The reducer of the current call; valid until the next call.
  [[nodiscard]] kernels::Reducer reducer(Call const& call);
  /// Bytes of the largest number of whole grains that fit into a block.
  [[nodiscard]] std::size_t block_for(Call const& call) const noexcept;

  /// For each of `blocks` blocks, begin(index, slot, request) starts an MPI operation on the slot and end(index, slot)
  /// uses what it brought. Each block begins before the previous one ends, so that data travels while results are
  /// computed.
  template <typename Begin, typename End>
  void pipeline(Call const& call, std::size_t blocks, Begin begin, End end);

  /// Sets the slot's counts, and copies what is to be sent. This rank's own piece stays where it is.
  void stage(Call const& call, Slot& slot, Piece const& gives, Piece const& gets) const;
  /// Copies every other rank's bytes to where they belong in recv.
  void take(Call const& call, Slot& slot, Piece const& gets) const;
  void start_all_to_all(Call const& call, Slot& slot, MPI_Request& request);
  void start_all_gather(Call const& call, Slot& slot, MPI_Request& request);
  /// From and to call.contract.root, which keeps its own piece in place.
  void start_gather(Call const& call, Slot& slot, std::byte const* mine, int bytes, MPI_Request& request);
  void start_scatter(Call const& call, Slot& slot, int bytes, MPI_Request& request);
  /// Starts the operation and waits for it.
  void run(Call const& call, char const* name, std::function<int(MPI_Request&)> const& begin);

  /// destination_k[i] = op over `sources`, which are the contributions of ranks 0 to sources.size() − 1.
  void combine(Call const& call, std::span<void const* const> sources, std::size_t bytes,
               std::span<void* const> destinations);
  /// destination_k[i] = op over the pieces of the first `contributors` ranks, which are in `slot`; this rank's is
  /// `own`.
  void reduce_pieces(Call const& call, Slot& slot, void const* own, int contributors, std::size_t bytes,
                     std::span<void* const> destinations);

  void reduce_inline(Call const& call);
  void reduce_gathered(Call const& call);
  void reduce_in_two_phases(Call const& call);
  // The second phase: combines this rank's piece of a block and moves the results to the ranks that get them.
  void share_results(Call const& call, Slot& slot, Piece const& piece);     ///< all_reduce
  void collect_results(Call const& call, Slot& slot, Piece const& piece);   ///< reduce
  void deal_out_results(Call const& call, Slot& slot, Piece const& piece);  ///< scan, exscan
  [[nodiscard]] bool keeps_result(Call const& call, int rank) const noexcept;

  void exchange(Call const& call, Transfers const& transfers, bool equal);
  void start_exchange(Call const& call, Slot& slot, MPI_Request& request);
  /// Collective. Compares the parts of a call whose parts are known to some ranks only; returns the longest one's
  /// bytes.
  /// @throws Error{mismatch} on every rank if what one rank gives is not what the other expects.
  [[nodiscard]] std::size_t agree_on_parts(Call const& call, Transfers const& transfers);

  /// Tells which MPI functions run `call`, if Config::explain asks for it.
  void explain(Call const& call, char const* algorithm, char const* functions) const;

  std::size_t block_;
  HostOrder hosts_;
  std::unique_ptr<Explainer> explainer_;  // on rank 0 only
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
