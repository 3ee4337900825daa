#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/explainer.hpp"
#include "collectives/partition.hpp"
#include "collectives/shm/channel.hpp"
#include "collectives/shm/cost_model.hpp"
#include "collectives/shm/feeds.hpp"
#include "collectives/shm/mailbox.hpp"
#include "collectives/shm/muster.hpp"
#include "collectives/shm/peer_heaps.hpp"
#include "collectives/shm/pull.hpp"
#include "collectives/shm/reuse.hpp"
#include "collectives/shm/selector.hpp"
#include "collectives/shm/staging_ring.hpp"
#include "collectives/shm/swap_blocks.hpp"
#include "collectives/shm/symmetric_heap.hpp"
#include "collectives/shm/tuning.hpp"
#include "kernels/cpu/reduce.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"
#include "weft/config.hpp"

namespace weft::shm {

/// How the ranks of a communicator work; rank 0 decides.
struct Plan {
  Tuning tuning;
  Selector selector;
  CostModel costs;
  bool explains = false;
  bool measures = false;  ///< costs are not known yet, and are to be measured
};

/// Collectives by loads and stores between ranks of one host. Payloads of up to 56 B in all travel in the cache line of
/// the announcement (inline), or of the feed's slot. For longer ones each operation asks the Selector, by what all
/// ranks know alike.
class ShmBackend final : public Backend {
 public:
  /// Collective over the bootstrap; `options` must have a config. @throws Error{unsupported} when the ranks are on
  /// several hosts.
  static std::unique_ptr<Backend> create(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                         Surroundings surroundings = {});

  /// Collective: a backend that works by `plan`, which is equal on all ranks.
  static std::unique_ptr<ShmBackend> assemble(Bootstrap& bootstrap, Plan const& plan,
                                              std::function<void()> const& progress = {});

  [[gnu::hot]] void all_reduce(Call const& call) override;
  [[gnu::hot]] void reduce_scatter(Call const& call) override;
  [[gnu::hot]] void all_gather(Call const& call) override;
  [[gnu::hot]] void broadcast(Call const& call) override;
  [[gnu::hot]] void reduce(Call const& call) override;
  [[gnu::hot]] void gather(Call const& call) override;
  [[gnu::hot]] void scatter(Call const& call) override;
  [[gnu::hot]] void all_to_all(Call const& call) override;
  void scan(Call const& call) override;
  [[gnu::hot]] void barrier(Call const& call) override;
  void merged(MergedCall const& calls) override;
  [[nodiscard]] MergeLimits merge_limits() const noexcept override;
  void transfer(Call const& call, std::span<Message const> messages) override;
  std::unique_ptr<Transit> begin(Call const& call, Message const& message) override;
  void await(Call const& call, std::function<bool()> const& ready) override;
  void throw_if_failed() override;
  [[nodiscard]] PeerState peer_state(int rank) override;
  std::shared_ptr<void> allocate(Call const& call) override;
  void abort(std::string const& reason) noexcept override;
  void fail(ErrorCode code, std::string const& reason) noexcept override { channel_.fail(code, reason); }
  void require_survivors() const override {}
  [[nodiscard]] std::unique_ptr<Survivors> survivors(std::chrono::milliseconds timeout) override {
    return std::make_unique<ShmSurvivors>(muster_, rank(), timeout);
  }

  [[nodiscard]] int rank() const noexcept { return channel_.rank(); }
  [[nodiscard]] int size() const noexcept { return channel_.size(); }

  /// Uses other choices from the next call on, the same on all ranks. For measuring.
  void use(Selector const& selector) noexcept { selector_ = selector; }
  /// See Tuning; from the next call on. For measuring.
  void poll_at_once(bool at_once) noexcept { channel_.poll_at_once(at_once); }
  void stream_from(std::size_t bytes) noexcept { tuning_.streaming_bytes = bytes; }
  void take_up_to(std::size_t bytes) noexcept { tuning_.take_bytes = bytes; }

  /// Memory that the ranks share besides symmetric buffers.
  struct Segments {
    std::shared_ptr<Mapping> control;
    std::shared_ptr<Mapping> staging;
    std::shared_ptr<Mapping> swap;  ///< null: no blocks change hands
    std::shared_ptr<Mapping> feeds;
  };
  ShmBackend(Segments segments, int rank, int size, Plan const& plan, std::function<void()> const& progress);

 private:
  void join_heaps(Bootstrap& bootstrap, std::shared_ptr<SharedHeap> const& own);

  /// Addresses of one symmetric buffer on every rank.
  using Addresses = std::array<void*, kMaxRanks>;
  struct Unpin {
    void operator()(SymmetricHeap* heap) const noexcept { heap->unpin(); }
  };
  /// Addresses of a call's send and receive buffers on every rank, as far as they were needed, and what keeps them
  /// mapped. Not initialised, here and in Placements: zeroing entries for the most ranks that there can be takes as
  /// long as a small call.
  struct Symmetric {
    Symmetric() noexcept {}  // NOLINT(modernize-use-equals-default,cppcoreguidelines-pro-type-member-init)
    Addresses send;
    Addresses recv;
    std::unique_ptr<SymmetricHeap, Unpin> pins;
    bool in_place = false;   ///< every rank receives where it sends, and both were needed
    bool has_sends = false;  ///< `send` is known, also where it was only offered
    bool has_recvs = false;  ///< the same of `recv`
  };
  /// Where one of a call's buffers lies on every rank, and which segments each rank holds.
  struct Placements {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
    explicit Placements(std::array<std::uint64_t, kMaxRanks> const& of) noexcept : held(of) {}
    std::array<Placement, kMaxRanks> at;
    std::array<std::uint64_t, kMaxRanks> const& held;
  };
  /// Which buffers a direct algorithm has to reach on the peers; the other one may be offered as well. nothing: this
  /// rank must not take part in a direct algorithm.
  enum class Needs { nothing, send, recv, both };

  /// Offset in an announcement's payload where a rank of a premul_sum tells its scale.
  static constexpr std::size_t kScaleOffset = kInlineBytes - sizeof(double);

  void announce(Call const& call, void const* payload = nullptr, std::size_t bytes = 0) {
    if (call.contract.reduce == ReduceOp::premul_sum) [[unlikely]]
      return announce_with_scale(call, payload, bytes);
    channel_.announce(call, payload, bytes);
  }
  void announce_with_scale(Call const& call, void const* payload, std::size_t bytes);
  [[gnu::hot]] void await_announcements();
  /// Announces the call with its buffers' placements. Returns the addresses on all ranks if every rank's needed buffers
  /// are symmetric, else nothing. A rank whose buffer nobody reaches passes 0 bytes and has no address. `recv` begins
  /// at the address that Symmetric::recv will hold. `lent`: private memory that peers may fetch() from or push() to if
  /// buffers are not symmetric; the send buffer unless given.
  [[nodiscard]] std::optional<Symmetric> negotiate(Call const& call, std::size_t send_bytes,
                                                   std::span<std::byte const> recv, Needs needs,
                                                   void const* lent = nullptr);
  [[nodiscard]] static std::span<std::byte const> whole_recv(Call const& call, std::size_t bytes) noexcept {
    return {static_cast<std::byte const*>(call.recv), bytes};
  }
  /// Where a buffer lies that peers may want to reach.
  [[nodiscard]] Placement place(void const* data, std::size_t bytes) const noexcept;
  /// The first rank that no longer holds segment `number`; -1: all do.
  [[nodiscard]] int who_released(std::uint32_t number, Placements const& placements) const noexcept;
  /// Whether the buffers of all ranks can be reached; fills `addresses` with where.
  [[nodiscard]] bool resolve(Placements const& placements, Addresses& addresses) const;
  [[nodiscard]] Route why_copied(Placements const& placements, Route::How private_how) const;
  /// Runs `call`, of `bytes` as Rules counts them, as the selector says, by run(choice, buffers, announced). Where the
  /// size alone does not decide, calls negotiate(), which announces the call. `buffers`: what that has found; null
  /// where buffers do not matter or cannot be reached.
  template <typename Negotiate, typename Run>
  void select(Call const& call, Collective collective, std::size_t bytes, Negotiate negotiate, Run run);
  void explain(Call const& call, Collective collective, Memory memory, std::size_t bytes, Choice const& choice) const;
  void explain_inline(Call const& call, std::size_t most) const;
  void explain_short_broadcast(Call const& call) const;

  /// Tells the peers that this rank's current block is there, by announcing the call (first block of an unannounced
  /// call) or arriving at a meeting. Then runs meanwhile(), for which the peers do not wait, and waits for their
  /// blocks.
  template <typename Meanwhile>
  void exchange_block(Call const& call, bool announced, Meanwhile meanwhile) {
    announced ? channel_.arrive() : announce(call);
    meanwhile();
    announced ? channel_.await_arrivals() : await_announcements();
  }
  void exchange_block(Call const& call, bool announced) {
    exchange_block(call, announced, [] {});
  }
  /// How the announced call combines contributions; valid until the next call.
  [[nodiscard]] kernels::Reducer reducer(Call const& call) noexcept;
  /// Bytes of payload that fit an announcement of `call` beside what announce() itself tells.
  [[nodiscard]] static std::size_t inline_bytes(Call const& call) noexcept {
    return call.contract.reduce == ReduceOp::premul_sum ? kScaleOffset : kInlineBytes;
  }
  /// How the call's results are written: past the caches if they would have left them by the time their buffer is used
  /// again, except in place, where they replace what was just read. A step of another call goes by its length alone,
  /// because its results are used at once. `bytes`: half of what the buffers of a rank hold, in the mean of all ranks.
  [[nodiscard]] kernels::Store store_for(Call const& call, std::size_t bytes, bool in_place) noexcept {
    if (call.within != nullptr || call.contract.group.calls > 0) return store_for(bytes, in_place);
    return store_for(call, call.recv != nullptr ? call.recv : call.send, bytes, in_place);
  }
  [[nodiscard]] kernels::Store store_for(std::size_t bytes, bool in_place) const noexcept {
    return bytes >= tuning_.streaming_bytes && !in_place ? kernels::Store::streaming : kernels::Store::cached;
  }
  [[nodiscard]] kernels::Store store_for(MergedCall const& merged, bool in_place) noexcept;
  [[nodiscard]] kernels::Store store_for(Call const& call, void const* buffer, std::size_t bytes,
                                         bool in_place) noexcept {
    // Short results neither fill the caches nor gain.
    constexpr std::size_t kLeastStreamed = std::size_t{128} << 10;
    if (bytes < std::min(kLeastStreamed, tuning_.streaming_bytes)) return kernels::Store::cached;
    return store_for_long(call, buffer, bytes, in_place);
  }
  [[nodiscard]] kernels::Store store_for_long(Call const& call, void const* buffer, std::size_t bytes,
                                              bool in_place) noexcept;

  /// How a call that works in its ranks' own memory stores results and reads what peers wrote.
  struct Manner {
    kernels::Store store;
    bool takes;  ///< a rank that alone reads what a peer wrote takes those lines: see kernels::take()
  };
  /// Whether a call takes lines; `bytes` as for store_for(). It never takes lines that do not stay in the caches, which
  /// would be written to memory once more. All ranks must agree about this, unlike about stores.
  [[nodiscard]] bool takes(std::size_t bytes) const noexcept {
    return bytes <= tuning_.take_bytes && bytes < tuning_.streaming_bytes;
  }
  /// The same for calls that copy anyway: they take lines while they copy, others in a pass of its own.
  [[nodiscard]] bool copies_take(std::size_t bytes) const noexcept {
    return tuning_.take_bytes > 0 && bytes < tuning_.streaming_bytes;
  }
  [[nodiscard]] Manner manner_of(Call const& call, std::size_t bytes, bool in_place) noexcept {
    return manner_of(store_for(call, bytes, in_place), takes(bytes));
  }
  [[nodiscard]] static Manner manner_of(kernels::Store store, bool takes) noexcept {
    return {store, takes && !kernels::is_past_caches(store)};
  }
  [[nodiscard]] Manner manner_of(MergedCall const& merged) noexcept;
  /// Copies what this rank alone reads from the memory of `peer`, which may be this rank.
  void copy_from_peer(int peer, void* to, void const* from, std::size_t bytes, Manner manner) {
    peer != rank() && manner.takes ? kernels::copy_and_take(to, from, bytes)
                                   : kernels::copy(to, from, bytes, manner.store);
  }
  /// reduce_to() of ranges of all ranks' own memory that this rank alone reads.
  void reduce_from_all(Call const& call, std::size_t count, std::array<void const*, kMaxRanks> const& sources,
                       void* destination, Manner manner);
  /// Copies to `peer`'s memory what `peer` reads next; `store`: how it would be stored in this rank's memory.
  void copy_to_peer(int peer, void* to, void const* from, std::size_t bytes, kernels::Store store);

  /// destination[i] = op over sources[r][i], for i in [0, count).
  [[gnu::hot]] void reduce_to(Call const& call, std::size_t count, std::array<void const*, kMaxRanks> const& sources,
                              void* destination, kernels::Store store);

  /// The same with a destination for every rank, in its own memory; null for a rank that keeps no result.
  void reduce_to_all(Call const& call, std::size_t count, std::array<void const*, kMaxRanks> const& sources,
                     std::array<void*, kMaxRanks> const& destinations, kernels::Store store);

  /// For two ranks with a core each, which give each other `bytes` in blocks of up to `most`. For each block,
  /// stage(block, first, length) fills this rank's block with its bytes [first, first + length); then keep(first,
  /// length) does what concerns this rank alone, while the peer may not be there yet; then consume(block, first,
  /// length) reads the peer's block. The lines of a short block are all fetched for writing beforehand, because this
  /// rank writes there next.
  static constexpr std::size_t kOwnedAtOnce = 1024;
  template <typename Stage, typename Keep, typename Consume>
  void swap_blocks(Call const& call, bool announced, std::size_t bytes, std::size_t most, Stage stage, Keep keep,
                   Consume consume);
  static constexpr auto kKeepsNothing = [](std::size_t, std::size_t) {};
  [[nodiscard]] int peer() const noexcept { return 1 - rank(); }
  /// Size of the blocks that two ranks swap. Where one rank only gives and the other only gets, they can work at the
  /// same time only on different blocks, so blocks are small.
  [[nodiscard]] std::size_t swapped_block(Call const& call, Choice const& choice) const noexcept {
    auto const operation = call.contract.operation;
    auto const one_way = operation == Operation::gather_v || operation == Operation::scatter_v;
    return one_way ? std::min(choice.chunk_bytes, tuning_.pipeline_bytes) : choice.chunk_bytes;
  }

  void all_reduce_by(Call const& call, Choice const& choice, Symmetric const* buffers, bool announced);
  [[gnu::hot]] void all_reduce_inline(Call const& call);
  [[gnu::hot]] void reduce_announced(Call const& call, std::size_t offset);
  void all_reduce_swapped(Call const& call, Choice const& choice, bool announced);
  /// Whether this rank gets the result of an all_reduce or reduce.
  [[nodiscard]] bool keeps_result(Call const& call) const noexcept {
    return call.contract.operation != Operation::reduce || call.is_root(rank());
  }
  void all_reduce_staged(Call const& call, Choice const& choice, bool announced);
  void all_reduce_block(Call const& call, Algorithm algorithm, std::size_t offset, std::size_t first, std::size_t count,
                        std::size_t& claimed);
  void all_reduce_direct(Call const& call, Choice const& choice, Symmetric const& buffers);
  void all_reduce_taking(Call const& call, Symmetric const& buffers, Manner manner);
  [[gnu::hot]] void reduce_scatter_inline(Call const& call);
  void reduce_scatter_swapped(Call const& call, Choice const& choice, bool announced);
  void reduce_scatter_staged(Call const& call, Choice const& choice, bool announced);
  void reduce_scatter_direct(Call const& call, Symmetric const& buffers);
  [[gnu::hot]] void all_gather_inline(Call const& call);
  void all_gather_swapped(Call const& call, Choice const& choice, bool announced);
  void all_gather_staged(Call const& call, Choice const& choice, bool announced);
  void all_gather_direct(Call const& call, Symmetric const& buffers);
  void all_gather_of_two(Call const& call, Symmetric const& buffers, std::size_t all, kernels::Store store);
  void all_gather_fetched(Call const& call);
  void pull_known(Call const& call, Transfers const& transfers, std::size_t most_sent);
  void pull_unequal(Call const& call, Transfers& transfers);
  [[gnu::hot]] void all_to_all_inline(Call const& call, std::size_t all_bytes);
  [[nodiscard]] Transfers no_transfers();
  void pull_staged(Call const& call, Transfers const& transfers, Choice const& choice, bool announced);
  void gather_v(Call const& call);
  void scatter_v(Call const& call);
  void pull_direct(Call const& call, Transfers const& transfers, Symmetric const& buffers);
  void pull_fetched(Call const& call, Transfers const& transfers);
  /// Whether, in the last call that negotiated, every rank lets the others read its send buffer; all ranks agree.
  [[nodiscard]] bool can_fetch() const noexcept;
  /// `choice`, or the staged one in place of fetched. For all_gather and pull, which are otherwise staged alike.
  [[nodiscard]] Choice const& staged_instead(Choice const& choice) const noexcept {
    return choice.algorithm == Algorithm::fetched ? selector_.rules(Collective::pull).other.front() : choice;
  }
  /// After negotiate(): copies `bytes` of what `peer` lent, from `offset` on.
  void fetch(Call const& call, int peer, std::size_t offset, void* destination, std::size_t bytes);
  /// After negotiate(): copies `bytes` of `source` to the memory that `peer` lent, from `offset` on.
  void push(Call const& call, int peer, std::size_t offset, void const* source, std::size_t bytes);
  /// Runs a call in which ranks push(). If it throws, first waits until no peer writes to this rank's memory any more
  /// (see Channel::await_writers()).
  template <typename Body>
  void lend(Body body) {
    try {
      body();
    } catch (...) {
      channel_.await_writers();
      throw;
    }
  }
  /// Fails the communicator because `peer`'s memory was not reached. The error says that the peer died, if it did, and
  /// else what `error` says.
  [[noreturn]] void fail_for_memory(Call const& call, int peer, Error const& error);
  /// Begins a call that goes through feeds.
  void begin_fed(Call const& call) {
    // All ranks come together where somebody wants to know when, or where ranks tell more than their data.
    if (call.met == nullptr && call.contract.reduce != ReduceOp::premul_sum) [[likely]]
      return channel_.begin(call);
    announce(call);
    await_announcements();
  }
  /// Begins `call` unless it was announced, and cuts `bytes` into blocks of up to `most`, at least one. Calls
  /// step(first, length) for each, which gives or gets that block.
  template <typename Step>
  void feed(Call const& call, bool announced, Feeds::Readers readers, std::size_t bytes, std::size_t most, Step step);
  /// Whether a call whose ranks give `bytes` at once fits the first lines of the feeds' slots. Then feed_short() runs
  /// it, with a step() that gives or gets all of it.
  [[nodiscard]] static bool is_short(bool announced, std::size_t bytes) noexcept {
    return !announced && bytes <= Feeds::kHeadBytes;
  }
  template <typename Step>
  void feed_short(Call const& call, Step step) {
    begin_fed(call);
    step();
    feeds_.pass();
  }
  /// Copies this rank's own part of a gather or scatter from one of its buffers to the other.
  [[gnu::hot]] void copy_part(Call const& call, void* to, void const* from) noexcept;
  [[gnu::hot]] void gather_short(Call const& call);
  [[gnu::hot]] void scatter_short(Call const& call);
  [[gnu::hot]] void reduce_short(Call const& call);
  [[gnu::hot]] void broadcast_short(Call const& call);
  [[gnu::hot]] void gather_fed(Call const& call, bool announced);
  [[gnu::hot]] void scatter_fed(Call const& call, bool announced);
  /// `buffers`, here and below: null where the kernel reaches private memory.
  void gather_direct(Call const& call, Symmetric const* buffers);
  void scatter_direct(Call const& call, Symmetric const* buffers);
  [[gnu::hot]] void reduce_fed(Call const& call, bool announced);
  [[gnu::hot]] void broadcast_fed(Call const& call, bool announced);
  void broadcast_in_two_levels(Call const& call, Choice const& choice, bool announced);
  void broadcast_direct(Call const& call, Symmetric const* buffers);

  /// For one piece of a merged call: bytes from a rank's buffers to those of the next rank.
  struct Strides {
    std::ptrdiff_t send = 0;
    std::ptrdiff_t recv = 0;
  };
  /// Announces a merged call, like negotiate(). Returns whether all buffers are symmetric, and at the same places on
  /// every rank; fills strides_.
  [[nodiscard]] bool negotiate_strides(MergedCall const& merged);
  void explain_merged(MergedCall const& merged, Memory memory, std::string_view how, std::string_view where) const;
  void merged_flat(MergedCall const& merged, bool announced);
  void merged_direct(MergedCall const& merged);
  void merged_all_reduce_direct(MergedCall const& merged);
  void merged_reduce_scatter_direct(MergedCall const& merged);
  void merged_copy_direct(MergedCall const& merged);
  void prefetch_piece(MergedCall const& merged, std::size_t index) const noexcept;
  void merged_swapped(MergedCall const& merged, bool announced);
  /// Whether this rank gets bytes from `other`.
  [[nodiscard]] bool gets_from(Call const& call, int other) const noexcept;
  /// Copies to this rank's staging ring.
  void stage(std::size_t offset, void const* from, std::size_t bytes);
  /// Divides [0, bytes) among the ranks, in whole grains, and returns when all have done their work.
  void share_out(std::size_t bytes, std::size_t grain, std::function<void(Range)> const& work);

  Tuning tuning_;
  Selector selector_;
  CostModel costs_;                       // the reasons, for explanations
  std::unique_ptr<Explainer> explainer_;  // rank 0's, where asked for
  Channel channel_;
  Muster muster_;
  Mailbox mailbox_;
  Feeds feeds_;
  StagingRing ring_;
  StoreChoice ring_stores_;  // for what this rank stages there
  SwapBlocks swap_;
  std::vector<StoreChoice> peer_stores_;  // for what this rank copies to each of its peers
  SymmetricHeap heap_;
  PeerHeaps peer_heaps_;
  Reuse reuse_;
  struct {
    std::uint64_t call = 0;
    std::size_t distance = 0;
  } stored_;                                     // by the current call
  std::array<double, kMaxRanks> scales_{};       // the current call's, of premul_sum
  std::vector<Transfer> transfers_;              // the current call's, with each rank
  std::vector<Strides> strides_;                 // of the current merged call's pieces
  std::array<std::uint64_t, kMaxRanks> lent_{};  // private addresses, of the last call that negotiated
  std::vector<std::byte> flat_;                  // buffers of merged calls, side by side
};

template <typename Negotiate, typename Run>
[[gnu::always_inline]] inline void ShmBackend::select(Call const& call, Collective collective, std::size_t bytes,
                                                      Negotiate negotiate, Run run) {
  call.route = {Route::How::small};
  if (auto const* choice = selector_.by_size(collective, bytes)) {
    if (explainer_) explain(call, collective, Memory::any, bytes, *choice);
    return run(*choice, nullptr, false);
  }
  std::optional<Symmetric> const buffers = negotiate();
  auto const memory = !buffers ? Memory::other : buffers->in_place ? Memory::in_place : Memory::symmetric;
  auto const& choice = selector_.by_memory(collective, bytes, memory);
  if (is_direct(choice.algorithm)) call.route = {Route::How::zero_copy};
  if (explainer_) explain(call, collective, memory, bytes, choice);
  run(choice, buffers ? &*buffers : nullptr, true);
}

template <typename Step>
void ShmBackend::feed(Call const& call, bool announced, Feeds::Readers readers, std::size_t bytes, std::size_t most,
                      Step step) {
  if (!announced) begin_fed(call);
  feeds_.give_to(readers);
  std::size_t first = 0;
  do {
    auto const length = std::min(most, bytes - first);
    step(first, length);
    feeds_.pass();
    first += length;
  } while (first < bytes);
}

template <typename Stage, typename Keep, typename Consume>
void ShmBackend::swap_blocks(Call const& call, bool announced, std::size_t bytes, std::size_t most, Stage stage,
                             Keep keep, Consume consume) {
  auto const block = call.whole_grains(most);
  for (std::size_t first = 0; first < bytes; first += block) {
    auto const length = std::min(block, bytes - first);
    stage(swap_.of(rank()), first, length);
    exchange_block(call, announced || first > 0, [&] { keep(first, length); });
    if (length <= kOwnedAtOnce) prefetch_for_write(swap_.of(peer()), length);
    consume(swap_.of(peer()), first, length);
    swap_.swap();
  }
}

}  // namespace weft::shm
