#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/peer_state.hpp"
#include "collectives/shm/control_block.hpp"
#include "collectives/shm/doorbell.hpp"
#include "collectives/shm/patience.hpp"
#include "collectives/shm/segment.hpp"
#include "collectives/shm/surroundings.hpp"
#include "core/cache_line.hpp"
#include "core/yielder.hpp"
#include "weft/error.hpp"

namespace weft::shm {

struct ChannelOptions {
  Patience inline_patience;          ///< waits on the calling thread
  Patience stream_patience;          ///< waits on a communication thread
  std::function<void()> progress{};  ///< called during waits; naps are short then
  bool polls_at_once = false;        ///< see Tuning
};

/// How the ranks of one communicator synchronise: announcements, meetings and claims of chunks. It also finds out when
/// a rank will not come any more, or makes other calls than the rest.
///
/// Beginning a call adds it to a fingerprint of all calls so far. Announcements and feeds carry that fingerprint, so
/// ranks whose calls differ find out where they next meet. If all ranks find the difference at the same call, and no
/// earlier call differed, all throw and may go on; otherwise the communicator has failed.
///
/// Two ranks swap their lines at every announcement and meeting: each writes where it last read the other's word. A
/// line then moves between the caches once per exchange, not twice (once to be read, once to be owned again), which
/// halves the time of a small collective.
///
/// One thread at a time, except functions that say "any thread". Once any rank has decided a failure, every wait on
/// every rank throws it as Error{peer_lost|timeout|aborted|…}, and so do later calls of begin() and announce().
class Channel {
 public:
  Channel(std::shared_ptr<Mapping> control, int rank, int size, ChannelOptions const& options);
  ~Channel();
  Channel(Channel const&) = delete;
  Channel& operator=(Channel const&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int pid(int rank) const noexcept { return static_cast<int>(control_->ranks[rank].pid); }

  /// Only before the first call.
  void set_surroundings(Surroundings surroundings) { surroundings_ = std::move(surroundings); }
  /// See Tuning. For measuring; only between calls, and each rank decides for itself.
  void poll_at_once(bool at_once) noexcept { options_.polls_at_once = at_once; }
  /// The number by which reports name `rank`.
  [[nodiscard]] int name_of(int rank) const noexcept {
    return surroundings_.ranks.empty() ? rank : surroundings_.ranks[static_cast<std::size_t>(rank)];
  }
  /// Text for the end of a report about `rank`: where that rank is, if there are several hosts.
  [[nodiscard]] std::string where_is(int rank) const { return surroundings_.hosts.where_is(name_of(rank)); }

  /// Begins `call`, which stays the current one until the next begins; waits belong to it. Throws a failure decided
  /// earlier.
  [[gnu::hot]] void begin(Call const& call);

  /// Fingerprint of all calls begun so far, in order.
  [[nodiscard]] std::uint32_t fingerprint() const noexcept { return static_cast<std::uint32_t>(calls_ >> 32U); }

  /// Begins and announces `call`, with up to kInlineBytes of payload.
  [[gnu::hot]] void announce(Call const& call, void const* payload = nullptr, std::size_t bytes = 0);

  /// Waits for every rank's announcement of the same call. @throws Error{mismatch} when contracts, or earlier calls,
  /// differ.
  [[gnu::hot]] void await_announcements();

  /// Payload that another rank announced with the current call; valid until this rank's next announce().
  [[nodiscard]] std::byte const* payload(int rank) const noexcept { return announcement_of(rank).payload; }

  /// Waits, within the current call, until every rank has come to the same meeting. Afterwards all ranks see what each
  /// of them wrote before it.
  void meet() {
    arrive();
    await_arrivals();
  }
  /// end_reading(), then meet(): for a rank that has read in the other ranks' memory.
  void meet_readers() {
    end_reading();
    meet();
  }
  /// Call it after reading in the other ranks' memory, before telling them so. Throws the communicator's failure, if
  /// there is one: a rank whose call has failed may have changed its memory while this rank was still reading.
  void end_reading() const {
    std::atomic_thread_fence(std::memory_order_acquire);  // after what was read
    throw_if_failed(call_);
  }
  /// The two halves of meet(). Between them a rank can do work that the others do not wait for.
  void arrive() noexcept;
  void await_arrivals();

  /// Tells `root` that this rank has done its share of the current call, without waiting for the other ranks' shares;
  /// the root waits for all. Afterwards the root sees what each rank wrote before.
  void report_to(int root);
  /// Like report_to(), but the others also wait until the root has done its share, and then see what it wrote.
  void report_with(int root);

  /// Takes the current call's next chunk that no rank has taken; empty when none below `chunks` is left. A call that
  /// claims in several rounds goes on counting from round to round, here and in the next two functions.
  [[nodiscard]] std::optional<std::size_t> claim(std::size_t chunks);
  /// Reports a claimed chunk done.
  void finish_claimed(std::size_t chunks);
  /// Waits until all `chunks` of the current call are done, whoever did them.
  void await_claimed(std::size_t chunks);

  /// Stores `value` after everything this rank wrote before (release), and wakes ranks that sleep waiting for it. Does
  /// not itself wait for the store.
  void post(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
    word.store(value, std::memory_order_release);
    wake_sleepers();
  }
  /// Waits until the upper half of `word`, which `peer` posts, equals that of `expected`; returns the word.
  [[nodiscard]] std::uint64_t await_tag(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t expected);
  /// Waits until the count in the upper half of `word`, which `peer` posts, has reached the low 32 bits of `count`;
  /// returns the word. Counts wrap, so it must be ahead by less than 2^31.
  [[nodiscard]] std::uint64_t await_count(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t count);

  /// Waits until the upper half of `word`, which `peer` posts, equals that of `value`, and its lower half is greater;
  /// returns the word.
  [[nodiscard]] std::uint64_t await_more(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t value);

  /// Fails the communicator because `peer` made other calls; the error says where they begin to differ.
  [[noreturn]] void fail_for_difference(int peer);

  /// What a wait does after each nap; public for waits that this class does not do itself. Throws a failure that any
  /// rank has decided, and decides one when `peer` died, left or is later than `deadline`, unless ready() is true by
  /// then. Any thread.
  void examine(Call const& call, int peer, std::function<bool()> const& ready,
               std::chrono::steady_clock::time_point deadline);

  /// Throws the failure that any rank has decided, if there is one. The text of an abort names no call, so `during` is
  /// added to it. Any thread.
  void throw_if_failed(Call const* during = nullptr) const {
    auto const state = control_->failure.state.load(std::memory_order_acquire);
    if (state != static_cast<std::uint32_t>(FailureState::none)) [[unlikely]]
      throw_failure(during);
  }
  /// See Backend.
  [[nodiscard]] PeerState peer_state(int peer);

  /// Runs `write`, a short function that writes to private memory which `peer` lent. @throws the communicator's failure
  /// instead, once there is one: the peer may need its memory again.
  template <typename Write>
  void write_to(int peer, Write write) {
    mine().writes_to.store(static_cast<std::uint32_t>(peer) + 1);
    // Store, then look for a failure; await_writers() looks at the word only after a failure was decided. So either
    // this rank sees the failure, or the peer sees that it is writing.
    full_fence();
    struct Done {
      std::atomic<std::uint32_t>& word;
      ~Done() { word.store(0, std::memory_order_release); }
    } const done{mine().writes_to};
    throw_if_failed(call_);
    write();
  }
  /// For a rank that has lent memory, once the communicator has failed: waits until no living rank writes there any
  /// more. Waits for a second at most: a rank that was stopped in the middle may go on much later.
  void await_writers() noexcept;

  /// How long calls spin and yield before they sleep.
  [[nodiscard]] Patience const& patience(Call const& call) const noexcept {
    return call.on_stream && !call.waited_for ? options_.stream_patience : options_.inline_patience;
  }

  /// Decides a failure for all ranks unless one was decided before. Any thread.
  void fail(ErrorCode code, std::string const& message) noexcept;

 private:
  [[nodiscard]] RankLines& mine() noexcept { return *mine_; }
  /// begin(), to be inlined; returns the call's contract.
  [[nodiscard]] PackedContract enter(Call const& call);
  [[noreturn]] void throw_failure(Call const* during) const;
  [[nodiscard]] bool swaps_lines() const noexcept { return size_ == 2; }
  /// Tells the other ranks which core this one runs on; called only where ranks share cores, as they look at it only
  /// there.
  void tell_core() noexcept;
  /// Whether `peer` last ran on this rank's core, so that it comes only when this rank leaves it.
  [[nodiscard]] bool shares_core(int peer) const noexcept {
    return control_->ranks[peer].core.load(std::memory_order_relaxed) == core_;
  }
  /// Calls wait(peer) for every other rank, first for those on this rank's core.
  template <typename Wait>
  void for_each_peer(Wait wait);
  [[nodiscard]] Announcement& announcement_of(int rank) const noexcept {
    return swaps_lines() ? *own_lines_[rank == rank_ ? parity_ : parity_ ^ 1]
                         : control_->ranks[rank].announcements[parity_];
  }
  [[nodiscard]] std::atomic<std::uint64_t>& meeting_of(int rank) const noexcept {
    return control_->ranks[swaps_lines() ? rank ^ static_cast<int>(meeting_ & 1U) : rank].meeting;
  }
  /// Call it after a store that peers may wait for. Where ranks sleep soon, a full fence orders the store before the
  /// look at the sleepers. Where they spin long before they sleep there is none: it would make this rank wait for the
  /// line that the peers are polling, which costs as much as a whole small collective. A peer that falls asleep in this
  /// very moment is then missed, and wakes after its first nap.
  void wake_sleepers() noexcept {
    if (patience_->spins + patience_->glances <= kFewSpins) [[unlikely]]
      full_fence();
    ring_doorbell(mine());
  }
  /// For two ranks: keeps this rank from polling before its own word is stored. An early poll would fetch the peer's
  /// line before the peer has written it, and the peer would have to take it back. Some processors' fences cost more
  /// than that, see Tuning::polls_at_once.
  void await_own_store() noexcept;
  static void ring_doorbell(RankLines& lines) noexcept {
    if (lines.sleepers.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      ring_bell(lines.doorbell);
  }
  /// Who can end a wait: the peer that it is for, or any rank.
  enum class Whose { peers, anybodys };
  /// Waits for `peer` until ready(). The rank sleeps on `peer`'s doorbell, also where any rank can end the wait.
  template <typename Ready>
  void await(int peer, Ready ready, Whose whose = Whose::peers);
  void await_report(int peer);
  /// Whether a rank on this core has yet to begin the current call.
  [[nodiscard]] bool holds_up_others() const noexcept;
  /// Polls for about as long as it takes to change ranks on a core, unless another rank needs this core. Returns
  /// whether ready() became true.
  template <typename Ready>
  [[nodiscard]] bool glance(int peer, Ready const& ready) const;
  template <typename Ready>
  void await_slowly(int peer, Ready const& ready, Whose whose);
  template <typename Ready>
  void sleep_on(RankLines& lines, Ready const& ready, std::chrono::nanoseconds nap) noexcept;
  /// Asks the surroundings, and takes over a failure that they know of.
  void look_outside(Call const& call, int peer, std::function<bool()> const& ready,
                    std::chrono::steady_clock::time_point deadline);
  /// The rank to name in a timeout: the one that made the fewest calls, or `peer` if nobody made fewer. Ranks that only
  /// give run ahead, so `peer` itself may be waiting for that rank. Of ranks with equally many calls, one that is not
  /// waiting is preferred: it may have taken a chunk of the call.
  [[nodiscard]] int find_latest(int peer) const noexcept;
  void explain_mismatch();
  void fail_if_different(int peer);
  void report_late_difference() const noexcept;
  /// Text about the first remembered call that `peer` made differently; empty when there is none.
  [[nodiscard]] std::string find_difference(int peer) const;
  [[nodiscard]] std::optional<Contract> recall(int rank, std::uint64_t sequence) const noexcept;
  [[nodiscard]] bool is_gone(int peer);

  static constexpr Patience kImpatient{};

  std::shared_ptr<Mapping> mapping_;
  ControlBlock* control_;
  RankLines* mine_;
  int rank_;
  int size_;
  std::array<Announcement*, 2> own_lines_{};  // of this rank's announcements, by parity
  ChannelOptions options_;
  Surroundings surroundings_;
  std::mutex pidfds_mutex_;
  std::array<int, kMaxRanks> pidfds_;

  Call const* call_ = nullptr;              // the current call
  Patience const* patience_ = &kImpatient;  // the current call's
  std::uint32_t core_ = 0;                  // as last told to the others
  Yielder yielder_;
  std::uint64_t calls_ = 0;       // fingerprint, whose upper half the others see
  std::uint64_t announced_ = 0;   // announcements so far
  std::uint64_t same_until_ = 0;  // the call up to which differences have been reported
  int suspicions_ = 0;            // how often a peer seemed to have made another call
  int parity_ = 0;                // of announced_
  std::uint64_t flag_ = 0;
  std::uint64_t meeting_ = 0;
  std::uint64_t report_ = 0;
};

}  // namespace weft::shm
