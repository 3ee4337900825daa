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
  std::function<void()> progress{};  ///< called by whoever waits; naps are short then
  bool polls_at_once = false;        ///< see Tuning
};

/// How the ranks of a communicator synchronise: announcements, meetings, claims, and the discovery that somebody will
/// not come, or makes other calls.
///
/// Every call is begun, which adds it to a fingerprint of all calls so far. Announcements and feeds carry it, so ranks
/// that differ find out where they next meet. Where all find it at the same call, and no call before it differed, all
/// throw and may go on; else the communicator has failed.
///
/// Two ranks swap their lines at every announcement and meeting: each writes where it last read the other's word. A
/// line then moves between the caches once per exchange, not twice (once to be read, once to be owned again), which
/// halves the time of a small collective.
///
/// One thread at a time, except what says "any thread". Every wait throws Error{peer_lost|timeout|aborted|…} on every
/// rank once any rank has decided a failure; from then on announce() throws it too.
class Channel {
 public:
  Channel(std::shared_ptr<Mapping> control, int rank, int size, ChannelOptions const& options);
  ~Channel();
  Channel(Channel const&) = delete;
  Channel& operator=(Channel const&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int pid(int rank) const noexcept { return static_cast<int>(control_->ranks[rank].pid); }

  /// Before the first call.
  void set_surroundings(Surroundings surroundings) { surroundings_ = std::move(surroundings); }
  /// See Tuning; between calls, and each rank for itself: for measuring.
  void poll_at_once(bool at_once) noexcept { options_.polls_at_once = at_once; }
  /// What reports call `rank`.
  [[nodiscard]] int name_of(int rank) const noexcept {
    return surroundings_.ranks.empty() ? rank : surroundings_.ranks[static_cast<std::size_t>(rank)];
  }
  /// For the end of a report about a rank: where it is, if there are several hosts.
  [[nodiscard]] std::string where_is(int rank) const { return surroundings_.hosts.where_is(name_of(rank)); }

  /// Begins `call`, which stays until the next one: waits are part of it. Throws a failure decided earlier.
  [[gnu::hot]] void begin(Call const& call);

  /// Of all calls begun, in order.
  [[nodiscard]] std::uint32_t fingerprint() const noexcept { return static_cast<std::uint32_t>(calls_ >> 32U); }

  /// Begins and announces `call`, with up to kInlineBytes of payload.
  [[gnu::hot]] void announce(Call const& call, void const* payload = nullptr, std::size_t bytes = 0);

  /// Waits for every rank's announcement of the same call. @throws Error{mismatch} when contracts, or earlier calls,
  /// differ.
  [[gnu::hot]] void await_announcements();

  /// Payload that another rank announced with the current call; valid until this rank's next announce().
  [[nodiscard]] std::byte const* payload(int rank) const noexcept { return announcement_of(rank).payload; }

  /// Waits within the current call until every rank has come to the same meeting. What a rank wrote before, all see
  /// after.
  void meet() {
    arrive();
    await_arrivals();
  }
  /// The two halves of meet(): between them a rank does what the others do not wait for.
  void arrive() noexcept;
  void await_arrivals();

  /// Tells `root` that this rank has done its share of the current call, without waiting for the other ranks' shares;
  /// the root waits for all. What a rank wrote before, the root sees after.
  void report_to(int root);
  /// The same, and the others wait for the root's share, whose writes they see after.
  void report_with(int root);

  /// Takes the next of the current call's chunks that no rank has taken, if any below `chunks` is left. A call that
  /// claims in several rounds counts its chunks on from round to round, here and below.
  [[nodiscard]] std::optional<std::size_t> claim(std::size_t chunks);
  /// Reports a claimed chunk done.
  void finish_claimed(std::size_t chunks);
  /// Waits until all `chunks` of the current call are done, whoever did them.
  void await_claimed(std::size_t chunks);

  /// Stores `value` after everything this rank wrote before, and wakes who waits for it. Does not wait for the store.
  void post(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
    word.store(value, std::memory_order_release);
    wake_sleepers();
  }
  /// Waits until the upper half of `word`, which `peer` posts, is that of `expected`; the word.
  [[nodiscard]] std::uint64_t await_tag(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t expected);
  /// Waits until the count in the upper half of `word`, which `peer` posts, has come to the low 32 bits of `count`, by
  /// less than 2^31; the word.
  [[nodiscard]] std::uint64_t await_count(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t count);

  /// Waits until the upper half of `word`, which `peer` posts, is that of `value`, and its lower half greater; the
  /// word.
  [[nodiscard]] std::uint64_t await_more(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t value);

  /// `peer` made other calls: fails the communicator, saying where they begin to differ.
  [[noreturn]] void fail_for_difference(int peer);

  /// For waits that this class does not do itself: throws a failure decided by anyone, and decides one when `peer`
  /// died, left or is later than `deadline`, unless `ready` after all. Any thread.
  void examine(Call const& call, int peer, std::function<bool()> const& ready,
               std::chrono::steady_clock::time_point deadline);

  /// Throws a failure decided by anyone; one that names no call is told `during` which. Any thread.
  void throw_if_failed(Call const* during = nullptr) const {
    auto const state = control_->failure.state.load(std::memory_order_acquire);
    if (state != static_cast<std::uint32_t>(FailureState::none)) [[unlikely]]
      throw_failure(during);
  }
  /// See Backend.
  [[nodiscard]] PeerState peer_state(int peer);

  /// How long calls spin and yield before they sleep.
  [[nodiscard]] Patience const& patience(Call const& call) const noexcept {
    return call.on_stream && !call.waited_for ? options_.stream_patience : options_.inline_patience;
  }

  /// Decides a failure for all ranks unless one was decided before. Any thread.
  void fail(ErrorCode code, std::string const& message) noexcept;

 private:
  [[nodiscard]] RankLines& mine() noexcept { return *mine_; }
  /// begin(), in line; the call's contract.
  [[nodiscard]] PackedContract enter(Call const& call);
  [[noreturn]] void throw_failure(Call const* during) const;
  [[nodiscard]] bool swaps_lines() const noexcept { return size_ == 2; }
  /// Tells the others which core this rank runs on, where they look at it.
  void tell_core() noexcept;
  /// Whether `peer` last ran on this rank's core, so that it comes only when this rank leaves it.
  [[nodiscard]] bool shares_core(int peer) const noexcept {
    return control_->ranks[peer].core.load(std::memory_order_relaxed) == core_;
  }
  /// wait(peer) for every other rank, for those on this rank's core first.
  template <typename Wait>
  void for_each_peer(Wait wait);
  [[nodiscard]] Announcement& announcement_of(int rank) const noexcept {
    return swaps_lines() ? *own_lines_[rank == rank_ ? parity_ : parity_ ^ 1]
                         : control_->ranks[rank].announcements[parity_];
  }
  [[nodiscard]] std::atomic<std::uint64_t>& meeting_of(int rank) const noexcept {
    return control_->ranks[swaps_lines() ? rank ^ static_cast<int>(meeting_ & 1U) : rank].meeting;
  }
  /// After a store that peers may wait for. Peers spin long before they sleep. A full fence would make this rank wait
  /// for the line that the peers are polling, which costs as much as a whole small collective; without it a peer that
  /// falls asleep in this very moment wakes after its first nap. Where nobody spins for long, the fence orders the
  /// store before the look at the sleepers.
  void wake_sleepers() noexcept {
    if (patience_->spins + patience_->glances <= kFewSpins) [[unlikely]]
      full_fence();
    ring_doorbell(mine());
  }
  /// Of two ranks that come together, keeps either from polling before its own word is out, which would take the line
  /// from the other before it wrote. Some processors' fences cost more than that.
  void await_own_store() noexcept;
  static void ring_doorbell(RankLines& lines) noexcept {
    if (lines.sleepers.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      ring_bell(lines.doorbell);
  }
  template <typename Ready>
  void await(int peer, Ready ready);
  void await_report(int peer);
  /// Whether a rank on this core has yet to begin the current call.
  [[nodiscard]] bool holds_up_others() const noexcept;
  /// Polls for about as long as a change of ranks takes, unless this core is wanted.
  template <typename Ready>
  [[nodiscard]] bool glance(int peer, Ready const& ready) const;
  template <typename Ready>
  void await_slowly(int peer, Ready const& ready);
  template <typename Ready>
  void sleep_on(RankLines& lines, Ready const& ready, std::chrono::nanoseconds nap) noexcept;
  /// Takes over a failure that the surroundings know of.
  void look_outside(Call const& call, int peer, std::function<bool()> const& ready,
                    std::chrono::steady_clock::time_point deadline);
  /// Who made the fewest calls, `peer` where nobody made fewer: who gives and goes on may wait in a later call for one
  /// that waits itself.
  [[nodiscard]] int find_latest(int peer) const noexcept;
  void explain_mismatch();
  void fail_if_different(int peer);
  void report_late_difference() const noexcept;
  /// What to say of the first call, of those remembered, that `peer` made otherwise; empty when there is none.
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
  std::uint32_t core_ = 0;                  // as told
  Yielder yielder_;
  std::uint64_t calls_ = 0;       // fingerprint, of which the upper half is told
  std::uint64_t announced_ = 0;   // announcements so far
  std::uint64_t same_until_ = 0;  // the call up to which differences have been reported
  int suspicions_ = 0;            // that a peer made another call than the current one
  int parity_ = 0;                // of announced_
  std::uint64_t flag_ = 0;
  std::uint64_t meeting_ = 0;
  std::uint64_t report_ = 0;
};

}  // namespace weft::shm
