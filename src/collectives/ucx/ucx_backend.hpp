#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/envelope.hpp"
#include "collectives/explainer.hpp"
#include "collectives/host_order.hpp"
#include "collectives/p2p/algorithms.hpp"
#include "collectives/p2p/measure_network.hpp"
#include "collectives/ucx/announcer.hpp"
#include "core/rank_hosts.hpp"
#include "transport/ucx/channel.hpp"
#include "transport/ucx/ucx_transport.hpp"
#include "transport/ucx/windows.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft::ucx {

/// Collectives between any ranks that UCX can connect: the algorithms of collectives/p2p over UCX's tagged messages.
///
/// Every call begins with an announcement, so that differing calls fail on every rank before data moves. Small buffers
/// travel in the announcement, which then is the whole call. Larger ones move by the fastest algorithm whose result has
/// the same bits wherever a buffer is cut: any algorithm if only bytes move or results are exact in any order,
/// otherwise those that combine in rank order. Long parts in symmetric memory are written directly to their
/// destination.
class UcxBackend final : public Backend {
 public:
  /// Collective over the bootstrap. `order`: the order in which reductions inside announcements combine. `is_outer`:
  /// whether this is the outer level of a hierarchy, whose inner level has messages of its own.
  [[nodiscard]] static std::unique_ptr<UcxBackend> create(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                                          RankHosts const& hosts, HostOrder order = HostOrder(),
                                                          bool is_outer = false);
  /// Local. @throws Error{unsupported|invalid_argument|system} if this rank cannot have a UcxBackend.
  static void require(CommunicatorOptions const& options, RankHosts const& hosts);
  /// The first half of create(): afterwards all ranks know that they reach one another, or all throw. It does not use
  /// the bootstrap after that. Pre: no rank's require() throws.
  [[nodiscard]] static std::unique_ptr<UcxBackend> connect(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                                           RankHosts const& hosts, HostOrder order = HostOrder(),
                                                           bool is_outer = false);
  /// The second half of create(): measures what messages cost, unless it is known already. Collective.
  void find_costs(Bootstrap& bootstrap, CommunicatorOptions const& options, RankHosts const& hosts);
  /// Measures the network anew, see p2p::measure_network(). Collective.
  [[nodiscard]] p2p::NetworkCosts measure(int distance) { return p2p::measure_network(transport_, distance); }
  [[nodiscard]] p2p::NetworkCosts const& costs() const noexcept { return network_; }
  UcxBackend(Bootstrap& bootstrap, CommunicatorOptions const& options, ChannelOptions const& channel, HostOrder hosts,
             bool is_outer);
  ~UcxBackend() override;

  void all_reduce(Call const& call) override { run(call); }
  void reduce_scatter(Call const& call) override { run(call); }
  void all_gather(Call const& call) override { run(call); }
  void broadcast(Call const& call) override { run(call); }
  void reduce(Call const& call) override { run(call); }
  void gather(Call const& call) override { run(call); }
  void scatter(Call const& call) override { run(call); }
  void all_to_all(Call const& call) override { run(call); }
  void scan(Call const& call) override { run(call); }
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

  /// For setting up what works beside this back end. Only between calls.
  [[nodiscard]] Transport& transport() noexcept { return transport_; }
  /// The same for work that belongs to `call`, which has been announced and must outlive that work.
  [[nodiscard]] Transport& within(Call const& call);
  /// For a rank that waits for `peer` in `inside`, a call of another level: see Channel::look_around().
  void look_around(Call const& inside, int peer, std::function<bool()> const& ready, std::chrono::nanoseconds waited);

 private:
  class Passage;  // a message on its way
  class KeptPassage;
  struct Leftover;  // what is left of a message that was given up

  [[nodiscard]] int rank() const noexcept { return channel_.rank(); }
  [[nodiscard]] int size() const noexcept { return channel_.size(); }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }

  [[nodiscard]] Purpose purpose_of(Call const& call) const;
  void run(Call const& call);
  void run_checked(Call const& call, Purpose const& purpose);
  [[nodiscard]] p2p::Choice choose(Call const& call);
  /// Compares the parts of a call whose parts are known to some ranks only. @throws Error{mismatch} on every rank if
  /// what one rank gives is not what the other expects.
  void agree_on_parts(Call const& call);

  // Calls whose buffers travel in the announcement (small_calls.cpp).
  [[nodiscard]] bool is_small(Call const& call, double others_s) const noexcept;
  void run_small(Call const& call, Purpose const& purpose);
  void combine_small(Call const& call, Purpose const& purpose);
  void move_small(Call const& call, Purpose const& purpose);

  // Calls whose parts ranks write directly to their destination (puts.cpp).
  [[nodiscard]] bool wants_puts(Call const& call) const noexcept;
  /// Announces and runs the call. False if some rank's buffer is not in a window: then nothing has moved.
  [[nodiscard]] bool run_puts(Call const& call, Purpose const& purpose);
  [[nodiscard]] Windows::Place place_of_results(Call const& call) const noexcept;
  /// Collective: makes a window of the memory, which other ranks can then write to, where UCX supports that.
  [[nodiscard]] std::shared_ptr<void> make_window(std::shared_ptr<void> memory, std::size_t bytes);
  [[nodiscard]] std::vector<Windows::Key> share_keys(Windows::Key const& mine);
  /// Collective: gathers `bytes` from every rank into `recv`, in rank order.
  void gather(void const* send, void* recv, std::size_t bytes);

  /// Tells which algorithm runs `call`, if Config::explain asks for it; only then makes the text of `why()`.
  template <typename Why>
  void explain(Call const& call, std::string_view algorithm, Why const& why) const {
    if (explainer_)
      explainer_->note(call.contract.operation, "any memory", algorithm, [&] { return std::string(why()); });
  }
  /// Ends messages after one of them has failed. Unless the communicator has failed, it first completes what other
  /// ranks still wait for.
  void give_up(Purpose const& purpose, std::span<Passage> passages) noexcept;
  /// Keeps the memory of an abandoned message as long as UCX uses it.
  void leave_behind(std::shared_ptr<Leftover> leftover);

  p2p::NetworkCosts network_;  ///< the costs that the algorithms' formulas use
  /// A cache of choose()'s last answers, indexed by a hash of the call's bytes, because choosing takes long for small
  /// calls.
  struct Chosen {
    PackedContract contract;
    std::size_t bytes = 0;
    p2p::Algorithm const* algorithm = nullptr;  ///< null: none yet
    double seconds = 0;
  };
  std::array<Chosen, 16> chosen_{};
  double gamma_s_per_byte_ = 1 / 8e9;
  HostOrder hosts_;
  bool is_outer_;
  bool rma_;
  std::string devices_;                   // as in UCX_NET_DEVICES
  std::unique_ptr<Explainer> explainer_;  // on rank 0 only
  p2p::Tuning tuning_{.chunk_bytes = Worker::kMostEager};
  std::vector<std::byte> contribution_;  // of this rank to a small reduction, after its scale
  // Used by small reductions, and kept to reuse their memory; only one thread at a time makes calls.
  std::vector<void const*> sources_;
  std::vector<double> scales_;
  std::vector<std::byte> flat_;  // buffers of merged calls, side by side

  std::shared_ptr<Windows> windows_;  // made with channel_, which is destroyed before it
  Channel channel_;
  Announcer announcer_;
  UcxTransport transport_;
  ReturnedEnvelopes returned_envelopes_;
  std::mutex leftovers_mutex_;
  std::vector<std::shared_ptr<Leftover>> leftovers_;
};

}  // namespace weft::ucx
