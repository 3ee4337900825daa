#include "collectives/shm/channel.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>

#include "collectives/shm/doorbell.hpp"
#include "core/abort_text.hpp"
#include "core/copy_text.hpp"
#include "core/log.hpp"
#include "kernels/cpu/short_copy.hpp"

namespace weft::shm {
namespace {

// How often a wait calls ChannelOptions::progress, if there is one: about every 2 µs while spinning, at every nap when
// asleep.
constexpr int kSpinsPerProgress = 64;
constexpr int kYieldsPerProgress = 8;
constexpr auto kProgressNap = std::chrono::microseconds(100);

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// The fingerprint of `calls` and one more call. Equal histories agree; different ones collide with probability 2^-32.
std::uint64_t add(std::uint64_t calls, PackedContract const& contract) noexcept {
  // splitmix64's finaliser.
  auto value = calls ^ contract.count ^ (contract.rest * 0xd6e8feb86659fd93U);
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

/// Whether a call is over at once when nobody is late; for calls of so few elements that a coarse clock is good enough.
bool is_brief(Contract const& contract) noexcept {
  auto const tells_no_count = has_unequal_parts(contract.operation) && !has_parts_in_common(contract.operation);
  return !tells_no_count && contract.reduce != ReduceOp::user;  // a user's operator may take any time
}

bool process_is_gone(int pidfd, std::int64_t pid) noexcept {
  if (pidfd >= 0) {
    pollfd wanted{pidfd, POLLIN, 0};
    return ::poll(&wanted, 1, 0) == 1;  // readable once it has exited, reaped or not
  }
  return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

}  // namespace

Channel::Channel(std::shared_ptr<Mapping> control, int rank, int size, ChannelOptions const& options)
    : mapping_(std::move(control)),
      control_(std::launder(reinterpret_cast<ControlBlock*>(mapping_->data()))),
      mine_(&control_->ranks[rank]),
      rank_(rank),
      size_(size),
      options_(options) {
  pidfds_.fill(-1);
  for (int parity = 0; parity < 2; ++parity) {
    own_lines_[parity] =
        swaps_lines() ? &control_->ranks[rank ^ parity].announcements[0] : &mine().announcements[parity];
  }
  mine().pid = ::getpid();
}

Channel::~Channel() {
  report_late_difference();
  mine().presence.store(static_cast<std::uint32_t>(Presence::departed));
  ring_doorbell(mine());
  for (int const fd : pidfds_) {
    if (fd >= 0) ::close(fd);
  }
}

inline PackedContract Channel::enter(Call const& call) {
  throw_if_failed(&call);
  call_ = &call;
  call.brief = is_brief(call.contract);
  patience_ = &patience(call);
  if (patience_->glances > 0) [[unlikely]]
    tell_core();
  suspicions_ = 0;
  PackedContract const contract(call.contract);
  calls_ = add(calls_, contract);
  // Noted before the announcement leaves: a peer that finds itself in another call looks here at once. `sequence` is 0
  // while the entry is written, so that recall() never returns half of one.
  auto& lines = mine();
  auto& entry = lines.remembered[call.sequence % kRemembered];
  entry.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.count.store(contract.count, std::memory_order_relaxed);
  entry.rest.store(contract.rest, std::memory_order_relaxed);
  entry.sequence.store(call.sequence, std::memory_order_release);
  lines.calls.store(call.sequence, std::memory_order_release);
  return contract;
}

void Channel::begin(Call const& call) {
  static_cast<void>(enter(call));
}

void Channel::announce(Call const& call, void const* payload, std::size_t bytes) {
  auto const before = calls_;
  auto const contract = enter(call);
  parity_ = static_cast<int>(++announced_ & 1U);
  flag_ = (announced_ << 32U) | fingerprint();
  mine().announced[parity_] = {contract, call.sequence, before};
  auto& announcement = *own_lines_[parity_];
  kernels::copy_short(announcement.payload, payload, bytes);
  post(announcement.flag, flag_);
}

void Channel::await_announcements() {
  await_own_store();
  bool same = true;
  for_each_peer([&](int peer) __attribute__((always_inline)) {
    auto const& flag = announcement_of(peer).flag;
    await(peer, [&] { return ((flag.load(std::memory_order_acquire) ^ flag_) >> 32U) == 0; });
    same = same && flag.load(std::memory_order_relaxed) == flag_;
  });
  if (!same) explain_mismatch();
  // Own the next call's line before it is needed: the peers read it last in the call before this one.
  if (!swaps_lines()) prefetch_for_write(&mine().announcements[parity_ ^ 1]);
  if (call_->met != nullptr) *call_->met = std::chrono::steady_clock::now();
}

void Channel::arrive() noexcept {
  ++meeting_;
  post(meeting_of(rank_), meeting_);
}

void Channel::await_arrivals() {
  await_own_store();
  for_each_peer([&](int peer) {
    auto const& meeting = meeting_of(peer);
    await(peer, [&] { return meeting.load(std::memory_order_acquire) >= meeting_; });
  });
}

void Channel::report_to(int root) {
  ++report_;
  if (rank_ != root) return post(mine().report, report_);
  for_each_peer([&](int peer) { await_report(peer); });
}

void Channel::report_with(int root) {
  if (swaps_lines()) return meet();  // of two ranks each waits for the other
  ++report_;
  post(mine().report, report_);
  if (rank_ != root) return await_report(root);
  for_each_peer([&](int peer) { await_report(peer); });
}

void Channel::await_report(int peer) {
  auto const& report = control_->ranks[peer].report;
  await(peer, [&] { return report.load(std::memory_order_acquire) >= report_; });
}

std::optional<std::size_t> Channel::claim(std::size_t chunks) {
  auto& next = control_->claims[parity_].next;
  auto const tag = call_->sequence << 32U;
  auto seen = next.load(std::memory_order_acquire);
  for (;;) {
    auto const taken = (seen ^ tag) >> 32U == 0 ? seen & 0xffffffffU : 0;
    if (taken >= chunks) return std::nullopt;
    if (next.compare_exchange_weak(seen, tag | (taken + 1), std::memory_order_acq_rel)) return taken;
  }
}

void Channel::finish_claimed(std::size_t chunks) {
  auto& done = control_->claims[parity_].done;
  auto const tag = call_->sequence << 32U;
  auto seen = done.load(std::memory_order_relaxed);
  std::uint64_t finished = 0;
  do {
    finished = ((seen ^ tag) >> 32U == 0 ? seen & 0xffffffffU : 0) + 1;
  } while (!done.compare_exchange_weak(seen, tag | finished));
  if (finished == chunks) {
    // Sleepers wait on the doorbell of whichever rank they last looked at.
    for (int peer = 0; peer < size_; ++peer) ring_doorbell(control_->ranks[peer]);
  }
}

void Channel::await_claimed(std::size_t chunks) {
  auto const& done = control_->claims[parity_].done;
  auto const tag = call_->sequence << 32U;
  auto const ready = [&] {
    auto const seen = done.load(std::memory_order_acquire) ^ tag;
    return seen >> 32U == 0 && seen >= chunks;
  };
  for (int peer = 0; peer < size_ && !ready(); ++peer) {
    if (peer != rank_) await(peer, ready, Whose::anybodys);
  }
}

void Channel::await_own_store() noexcept {
  if (!swaps_lines() || options_.polls_at_once) return;
  full_fence();
  ring_doorbell(mine());  // for a peer that fell asleep before the store was out
}

std::uint64_t Channel::await_tag(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t expected) {
  auto value = word.load(std::memory_order_acquire);
  if ((value ^ expected) >> 32U == 0) return value;
  await(peer, [&] { return ((value = word.load(std::memory_order_acquire)) ^ expected) >> 32U == 0; });
  return value;
}

std::uint64_t Channel::await_count(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t count) {
  std::uint64_t value = 0;
  await(peer, [&] {
    value = word.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value >> 32U) - static_cast<std::uint32_t>(count)) >= 0;
  });
  return value;
}

std::uint64_t Channel::await_more(int peer, std::atomic<std::uint64_t> const& word, std::uint64_t value) {
  auto const is_more = [value](std::uint64_t now) { return (now ^ value) >> 32U == 0 && now > value; };
  auto now = word.load(std::memory_order_acquire);
  if (!is_more(now)) await(peer, [&] { return is_more(now = word.load(std::memory_order_acquire)); });
  return now;
}

void Channel::tell_core() noexcept {
  auto const core = static_cast<std::uint32_t>(::sched_getcpu() + 1);
  if (core == core_) return;
  core_ = core;
  mine().core.store(core, std::memory_order_relaxed);
}

template <typename Wait>
void Channel::for_each_peer(Wait wait) {
  if (swaps_lines() && patience_->glances == 0) return wait(1 - rank_);
  if (patience_->glances > 0) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && shares_core(peer)) wait(peer);
    }
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) wait(peer);
  }
}

bool Channel::holds_up_others() const noexcept {
  for (int peer = 0; peer < size_; ++peer) {
    // Looking is cheap: the lines of a rank on this core are in this core's cache.
    if (shares_core(peer) && control_->ranks[peer].calls.load(std::memory_order_relaxed) < call_->sequence) return true;
  }
  return false;
}

template <typename Ready>
bool Channel::glance(int peer, Ready const& ready) const {
  if (ready()) return true;
  if (patience_->glances == 0 || shares_core(peer) || holds_up_others()) return false;
  for (int i = 0; i < patience_->glances; ++i) {
    if (ready()) return true;
  }
  return false;
}

template <typename Ready>
void Channel::await(int peer, Ready ready, Whose whose) {
  constexpr int kBareSpins = 512;  // a pause costs as much as a small collective
  for (int spin = 0; spin <= patience_->spins; ++spin) {
    if (ready()) return;
    if (spin <= kBareSpins) continue;
    call_->brief = false;
    pause();
    if (options_.progress && spin % kSpinsPerProgress == 0) options_.progress();
  }
  await_slowly(peer, ready, whose);
}

template <typename Ready>
void Channel::await_slowly(int peer, Ready const& ready, Whose whose) {
  call_->brief = false;
  auto const begin = std::chrono::steady_clock::now();
  auto const deadline = begin + call_->timeout;
  for (int yield = 0; yield < patience_->yields; ++yield) {
    if (glance(peer, ready)) return;
    if (options_.progress && yield % kYieldsPerProgress == 0) options_.progress();
    if (!yielder_.yield(patience_->late) || std::chrono::steady_clock::now() - begin > kLongestYielding) break;
  }
  mine().waits_in.store(call_->sequence, std::memory_order_relaxed);
  for (auto nap = kFirstNap; !ready(); nap = kNap) {
    if (options_.progress) options_.progress();
    sleep_on(control_->ranks[peer], ready, options_.progress ? kProgressNap : nap);
    for (int one = 0; one < size_ && !ready(); ++one) {
      bool const matters = whose == Whose::anybodys ? one != rank_ : one == peer;
      if (matters) examine(*call_, one, ready, deadline);
    }
  }
  mine().waits_in.store(0, std::memory_order_relaxed);
}

template <typename Ready>
void Channel::sleep_on(RankLines& lines, Ready const& ready, std::chrono::nanoseconds nap) noexcept {
  auto const rung = lines.doorbell.load();
  lines.sleepers.fetch_add(1);
  if (!ready() && control_->failure.state.load() == 0) sleep_until_rung(lines.doorbell, rung, nap);
  lines.sleepers.fetch_sub(1);
}

bool Channel::is_gone(int peer) {
  auto const& lines = control_->ranks[peer];
  if (lines.pid == ::getpid()) return false;
  std::lock_guard const lock(pidfds_mutex_);
  if (pidfds_[peer] < 0) pidfds_[peer] = static_cast<int>(::syscall(SYS_pidfd_open, lines.pid, 0));
  return process_is_gone(pidfds_[peer], lines.pid);
}

PeerState Channel::peer_state(int peer) {
  if (control_->ranks[peer].presence.load() == static_cast<std::uint32_t>(Presence::departed)) return PeerState::left;
  return is_gone(peer) ? PeerState::died : PeerState::present;
}

void Channel::await_writers() noexcept {
  constexpr auto kMoment = std::chrono::microseconds(100);
  constexpr auto kLongest = std::chrono::seconds(1);
  full_fence();
  auto const until = std::chrono::steady_clock::now() + kLongest;
  auto const writes = [&](int peer) {
    auto const to = control_->ranks[peer].writes_to.load(std::memory_order_acquire);
    return to == static_cast<std::uint32_t>(rank_) + 1 && peer_state(peer) == PeerState::present;
  };
  for (int peer = 0; peer < size_; ++peer) {
    while (peer != rank_ && writes(peer) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(kMoment);
  }
}

void Channel::examine(Call const& call, int peer, std::function<bool()> const& ready,
                      std::chrono::steady_clock::time_point deadline) {
  throw_if_failed(&call);
  auto const& lines = control_->ranks[peer];
  auto const state = peer_state(peer);
  if (ready()) return;  // what it did before it died or left counts
  if (!is_point_to_point(call.contract.operation)) fail_if_different(peer);
  auto const what = [&](int of) {  // built only for an error: a wait comes here after every nap
    auto const reached = control_->ranks[of].calls.load();
    auto const side = is_point_to_point(call.contract.operation) ? fmt::format("its side of rank {}'s ", name_of(rank_))
                                                                 : std::string();
    return fmt::format("{}{} (it made {} collective call{} on this communicator; rank {} waited)", side, describe(call),
                       reached, reached == 1 ? "" : "s", name_of(rank_));
  };
  if (state == PeerState::died) {
    fail(ErrorCode::peer_lost, fmt::format("rank {} (pid {}) died before completing {}; see its output for the cause{}",
                                           name_of(peer), lines.pid, what(peer), where_is(peer)));
  } else if (state == PeerState::left) {
    fail(ErrorCode::peer_lost,
         fmt::format("rank {} left (its communicator was destroyed) before completing {}; every rank must make the "
                     "same calls{}",
                     name_of(peer), what(peer), where_is(peer)));
  } else {
    look_outside(call, peer, ready, deadline);
    if (std::chrono::steady_clock::now() >= deadline) {
      auto const late = is_point_to_point(call.contract.operation) ? peer : find_latest(peer);
      fail(ErrorCode::timeout,
           fmt::format("rank {} did not complete {} within {} ms; it is stuck, slow or made fewer calls: look there, "
                       "or raise the time limit (WEFT_TIMEOUT or the call's own){}",
                       name_of(late), what(late), call.timeout.count(), where_is(late)));
    }
  }
  throw_if_failed(&call);
}

int Channel::find_latest(int peer) const noexcept {
  auto const calls_of = [&](int rank) { return control_->ranks[rank].calls.load(std::memory_order_acquire); };
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && calls_of(other) < calls_of(peer)) peer = other;
  }
  auto const waits = [&](int rank) {
    return control_->ranks[rank].waits_in.load(std::memory_order_relaxed) == calls_of(rank);
  };
  for (int other = 0; other < size_ && waits(peer); ++other) {
    if (other != rank_ && calls_of(other) == calls_of(peer) && !waits(other)) peer = other;
  }
  return peer;
}

void Channel::look_outside(Call const& call, int peer, std::function<bool()> const& ready,
                           std::chrono::steady_clock::time_point deadline) {
  if (!surroundings_.look || is_point_to_point(call.contract.operation)) return;
  auto const limit = std::chrono::nanoseconds(call.timeout);
  auto const waited = limit - (deadline - std::chrono::steady_clock::now());
  try {
    surroundings_.look(call, name_of(peer), ready, waited);
  } catch (Error const& error) {
    fail(error.code(), error.what());
  }
}

/// Logs a difference that nobody has reported: ranks that only gave in their last calls meet no rank that could tell
/// them.
void Channel::report_late_difference() const noexcept try {
  if (control_->failure.state.load() != static_cast<std::uint32_t>(FailureState::none)) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if (auto const difference = find_difference(peer); !difference.empty()) return log(LogLevel::error, difference);
  }
} catch (...) {  // no memory left to say it
}

void Channel::fail_if_different(int peer) {
  // Only a difference that lasts fails the communicator. A peer that is only just beginning to announce its other call
  // will be found by all ranks together, and then all can go on.
  constexpr int kLasting = 3;
  auto const difference = find_difference(peer);
  if (difference.empty() || ++suspicions_ < kLasting) return;
  fail(ErrorCode::mismatch, difference);
}

void Channel::throw_failure(Call const* during) const {
  constexpr auto kMostWriting = std::chrono::seconds(2);  // takes far less, unless that rank is killed or stopped
  auto const& failure = control_->failure;
  auto const end = std::chrono::steady_clock::now() + kMostWriting;
  while (failure.state.load(std::memory_order_acquire) != static_cast<std::uint32_t>(FailureState::set)) {
    if (std::chrono::steady_clock::now() >= end) {
      throw Error(ErrorCode::peer_lost,
                  fmt::format("{}: a rank that found a failure died or stopped before it had said "
                              "which; see the ranks' output for the cause",
                              name_of(rank_)));
    }
    ::sched_yield();
  }
  auto const code = static_cast<ErrorCode>(failure.code);
  // The texts of other failures name the call in which they were found.
  if (code != ErrorCode::aborted || during == nullptr) throw Error(code, failure.message);
  throw Error(code, interrupting(failure.message, name_of(rank_), describe(*during)));
}

void Channel::fail(ErrorCode code, std::string const& message) noexcept {
  auto& failure = control_->failure;
  auto none = static_cast<std::uint32_t>(FailureState::none);
  if (!failure.state.compare_exchange_strong(none, static_cast<std::uint32_t>(FailureState::writing))) return;
  failure.code = static_cast<std::uint32_t>(code);
  copy_text(message, failure.message);
  failure.state.store(static_cast<std::uint32_t>(FailureState::set));
  for (int peer = 0; peer < size_; ++peer) ring_doorbell(control_->ranks[peer]);
}

std::optional<Contract> Channel::recall(int rank, std::uint64_t sequence) const noexcept {
  auto const& entry = control_->ranks[rank].remembered[sequence % kRemembered];
  if (entry.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  PackedContract const contract(entry.count.load(std::memory_order_relaxed),
                                entry.rest.load(std::memory_order_relaxed));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  return contract.unpack();
}

std::string Channel::find_difference(int peer) const {
  auto const last = std::min(control_->ranks[rank_].calls.load(), control_->ranks[peer].calls.load());
  auto const first = std::max(same_until_ + 1, last < kRemembered ? 1 : last - kRemembered + 1);
  for (auto sequence = first; sequence <= last; ++sequence) {
    auto const ours = recall(rank_, sequence);
    auto const theirs = recall(peer, sequence);
    if (!ours || !theirs || *ours == *theirs) continue;
    return describe_mismatch(sequence, name_of(rank_), *ours, name_of(peer), *theirs) +
           " (some had returned when this was found, so the communicator has failed)";
  }
  return {};
}

void Channel::fail_for_difference(int peer) {
  auto difference = find_difference(peer);
  if (difference.empty()) {
    difference = fmt::format(
        "ranks {} and {} made different calls before {}, more than {} calls ago; make the calls equal (WEFT_FLIGHT_DIR "
        "and weft-doctor show them)",
        name_of(rank_), name_of(peer), describe(*call_), kRemembered);
  }
  fail(ErrorCode::mismatch, difference);
  throw_if_failed();
  throw Error(ErrorCode::mismatch, difference);
}

void Channel::explain_mismatch() {
  auto const& ours = mine().announced[parity_];
  for (int peer = 0; peer < size_; ++peer) {
    auto const& theirs = control_->ranks[peer].announced[parity_];
    if (theirs.sequence != ours.sequence || theirs.before != ours.before) fail_for_difference(peer);
  }
  // No earlier call differed, and all ranks have found this difference: they start again with equal fingerprints.
  calls_ = 0;
  same_until_ = ours.sequence;
  for (int peer = 0; peer < size_; ++peer) {
    // Skips this rank itself: of two ranks, the peer's next announcement takes the line of this rank's last one.
    if (peer == rank_ || announcement_of(peer).flag.load(std::memory_order_acquire) == flag_) continue;
    auto const& theirs = control_->ranks[peer].announced[parity_];
    throw Error(ErrorCode::mismatch, describe_mismatch(ours.sequence, name_of(rank_), call_->contract, name_of(peer),
                                                       theirs.contract.unpack()) +
                                         " (nothing was moved)");
  }
}

}  // namespace weft::shm
