#include "transport/ucx/channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "core/abort_text.hpp"
#include "core/copy_text.hpp"

namespace weft::ucx {
namespace {

constexpr int kPollsPerLook = 64;  // polls between calls of examine()
/// How long a wait polls before it sleeps: longer than a small call takes, and waking up afterwards costs little beside
/// the wait. Polling for longer would keep the kernel's work for connections off this core, which may be the only one.
constexpr auto kPatience = std::chrono::microseconds(50);
constexpr auto kStreamPatience = std::chrono::microseconds(20);       // a communication thread beside computation
constexpr auto kNapBetweenProgress = std::chrono::microseconds(200);  // where another library needs progress, too
/// A call that begins so soon after the one before does not listen: that one has heard all notices while it waited, and
/// listening takes the kernel a microsecond.
constexpr auto kJustListened = std::chrono::microseconds(50);
/// How long notices get to leave before an error is thrown.
constexpr auto kLastNotices = std::chrono::milliseconds(200);
/// How long this rank waits for the notice of a failure after a connection has broken, which may be its consequence.
constexpr auto kHearOut = std::chrono::milliseconds(500);
/// Up to so many ranks are all connected. With more, each connects to those 1, 2, 4, … ranks away in both directions:
/// news reaches all in as many steps as there are such distances, whichever rank dies, and no rank needs to connect
/// while others end.
constexpr int kFewRanks = 64;

template <typename T>
std::vector<T> tell_all(Bootstrap& bootstrap, T const& mine) {
  auto const raw = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(all.data(), raw.data(), raw.size());
  return all;
}

}  // namespace

Channel::Channel(Bootstrap& bootstrap, ChannelOptions const& options)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      patience_(options.spin ? Clock::duration(*options.spin) : Clock::duration(kPatience)),
      hosts_(options.hosts),
      progress_(options.progress),
      known_(static_cast<std::size_t>(bootstrap.size())),
      worker_(options.devices, options.rma, bootstrap.size(),
              [this](std::span<std::byte const> bytes) { hear(bytes); }) {
  exchange_addresses(bootstrap);
}

void Channel::exchange_addresses(Bootstrap& bootstrap) {
  auto const mine = worker_.address();
  auto const lengths = weft::ucx::tell_all(bootstrap, std::uint64_t{mine.size()});
  auto const longest = *std::max_element(lengths.begin(), lengths.end());
  auto padded = mine;
  padded.resize(longest);
  auto const all = bootstrap.all_gather(padded);
  std::vector<std::vector<std::byte>> addresses;
  for (std::size_t peer = 0; peer < lengths.size(); ++peer) {
    auto const begin = all.begin() + static_cast<std::ptrdiff_t>(peer * longest);
    addresses.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(lengths[peer]));
  }
  worker_.set_addresses(std::move(addresses));
}

Channel::~Channel() {
  auto notice = has_failed() ? failure() : Notice();
  notice.kind = Notice::Kind::left;
  notice.sequence = latest_.load();
  tell_all(notice, size_ <= kFewRanks && !has_failed());
  worker_.flush_notices(Clock::now() + kLastNotices);
}

bool Channel::is_acquaintance(int peer) const noexcept {
  if (peer == rank_) return false;
  auto const distance = static_cast<unsigned>((peer - rank_ + size_) % size_);
  return size_ <= kFewRanks || std::has_single_bit(distance) ||
         std::has_single_bit(static_cast<unsigned>(size_) - distance);
}

void Channel::connect(Purpose const& purpose) {
  for (int peer = 0; peer < size_; ++peer) {
    if (is_acquaintance(peer)) tell(Notice{}, peer);
  }
  for (int peer = 0; peer < size_; ++peer) {
    // This rank's hello leaves only while it makes progress, which it may not do for long once this has returned.
    await(
        purpose, [&] { return has_greeted(peer) && !worker_.owes_notice(peer); }, peer);
  }
}

void Channel::enter(Purpose const& purpose) {
  latest_.store(purpose.sequence);
  auto const now = Clock::now().time_since_epoch();
  auto const since = now - Clock::duration(entered_at_.exchange(now.count()));
  if (since > kJustListened) listen();
  throw_if_failed(&purpose);
}

void Channel::listen() {
  constexpr int kMostTurns = 8;
  for (int turn = 0; turn < kMostTurns && worker_.progress(); ++turn) {
  }
}

void Channel::await(Purpose const& purpose, std::function<bool()> const& ready, int const& peer,
                    std::chrono::milliseconds longest_nap) {
  if (ready()) return;
  auto const start = Clock::now();
  auto const patience = purpose.beside_computation ? std::min<Clock::duration>(patience_, kStreamPatience) : patience_;
  auto const nap =
      progress_ ? std::min<Clock::duration>(longest_nap, kNapBetweenProgress) : Clock::duration(longest_nap);
  for (int poll = 1;; ++poll) {
    worker_.progress();
    auto const seen = worker_.events();
    if (ready()) return;
    if (has_failed()) throw_if_failed(&purpose);
    if (progress_) progress_();
    auto const waited = Clock::now() - start;
    if (waited < patience && yielder_.yield()) {
      if (poll % kPollsPerLook != 0) continue;
    } else {
      worker_.sleep(seen, nap);
      if (purpose.pause.count() > 0 && !ready()) std::this_thread::sleep_for(purpose.pause);
    }
    examine(purpose, ready, peer, waited);
  }
}

void Channel::look_around(Purpose purpose, std::function<bool()> const& ready, int peer,
                          std::chrono::nanoseconds waited) {
  purpose.sequence = latest_.load();
  listen();
  throw_if_failed(&purpose);
  examine(purpose, ready, peer, waited);
}

void Channel::examine(Purpose const& purpose, std::function<bool()> const& ready, int peer, Clock::duration waited) {
  if (peer == kNobody) return;
  auto const limit = Clock::duration(purpose.timeout);
  if (worker_.first_broken() >= 0 || waited >= limit / 4) {
    if (auto const lost = find_lost(purpose, peer); lost != kNobody) {
      listen();
      if (ready()) return;  // what the lost rank sent before may have come together with the notice that it left
      throw_if_failed(&purpose);
      lose(purpose, lost);
    }
  }
  if (waited >= limit / 4) say_here(purpose, peer);
  if (waited < limit) return;
  auto const culprit = find_culprit(purpose, peer);
  auto const who = culprit == kNobody ? std::string("some rank") : fmt::format("rank {}", culprit);
  fail_with(ErrorCode::timeout,
            fmt::format("{} did not complete {} within {} ms (rank {} waited); it is stuck, slow or made fewer calls: "
                        "look there, or raise the time limit (WEFT_TIMEOUT or the call's own){}",
                        who, purpose.describe(), purpose.timeout.count(), rank(), hosts_.where_is(culprit)));
}

int Channel::find_lost(Purpose const& purpose, int peer) {
  auto const is_lost = [&](int other) {
    auto const index = static_cast<std::size_t>(other);
    std::lock_guard const lock(mutex_);
    auto const left = known_[index].left;
    if (left != Known::kStays) return purpose.sequence == 0 || left < purpose.sequence;
    return worker_.is_broken(other);
  };
  if (peer != rank() && is_lost(peer)) return peer;
  if (purpose.sequence == 0) return kNobody;  // a message concerns no rank but its peer
  for (int other = 0; other < size(); ++other) {
    if (other != rank() && is_lost(other)) return other;
  }
  return kNobody;
}

/// Waits a little for the notice of a failure. A rank that has heard of one closes its connections to ranks that it
/// owes messages, and these may not have heard of it yet: the cause of a broken connection is most often on its way.
void Channel::hear_out(Purpose const& purpose, int peer) {
  auto const deadline = Clock::now() + kHearOut;
  while (Clock::now() < deadline && !has_left(peer)) {
    auto const seen = worker_.events();
    throw_if_failed(&purpose);
    if (!worker_.progress()) worker_.sleep(seen, std::chrono::milliseconds(10));
  }
  throw_if_failed(&purpose);
}

void Channel::lose(Purpose const& purpose, int peer) {
  if (!has_left(peer)) hear_out(purpose, peer);
  if (has_left(peer)) {
    fail_with(
        ErrorCode::peer_lost,
        fmt::format("rank {} left (its communicator was destroyed) before completing {}; every rank must make the "
                    "same calls{}",
                    peer, purpose.describe(), hosts_.where_is(peer)));
  }
  char const* const why = has_greeted(peer) ? "its process died or its host cannot be reached any more: look there"
                                            : "its process died, or nothing that UCX may use here leads there "
                                              "(WEFT_NET_DEVICES, UCX_NET_DEVICES, UCX_TLS): look at both";
  fail_with(ErrorCode::peer_lost, fmt::format("rank {} is lost: its connection to rank {} broke during {}; {}{}", peer,
                                              rank(), purpose.describe(), why, hosts_.where_is(peer)));
}

bool Channel::wait(Purpose const& purpose, Pending const& operation) {
  if (!operation.is_done()) {
    await(
        purpose, [&] { return operation.is_done(); }, operation.peer());
  }
  return check(purpose, operation);
}

bool Channel::check(Purpose const& purpose, Pending const& operation) {
  if (operation.status() == UCS_OK) return true;
  if (operation.status() == UCS_ERR_MESSAGE_TRUNCATED) return false;
  throw_if_failed(&purpose);
  lose(purpose, operation.peer());
}

void Channel::say_here(Purpose const& purpose, int peer) noexcept {
  if (purpose.sequence == 0) return;
  auto const now = Clock::now().time_since_epoch();
  auto const again = now - Clock::duration(told_at_.load()) >= Clock::duration(purpose.timeout) / 8;
  if (told_here_.load() >= purpose.sequence && !again) return;
  told_here_.store(purpose.sequence);
  told_at_.store(now.count());
  Notice notice;
  notice.kind = Notice::Kind::here;
  notice.waits_for = peer;
  tell_all(notice, true);
}

int Channel::find_culprit(Purpose const& purpose, int peer) {
  if (purpose.sequence == 0) return peer;
  // A rank that waits says so every eighth of the limit; one that stopped before this rank began to wait has been
  // silent for longer.
  auto const since = Clock::now() - purpose.timeout / 4 * 3;
  std::lock_guard const lock(mutex_);
  auto const is_silent = [&](int other) {
    auto const& heard = known_[static_cast<std::size_t>(other)].heard;
    return other != rank() && (!heard || *heard < since);
  };
  for (int step = 0, at = peer; step < size() && at != rank(); ++step) {
    if (is_silent(at)) return at;
    at = known_[static_cast<std::size_t>(at)].waits_for;
  }
  // The ranks wait for one another in a circle: one that waits for any of several can name only one of them.
  for (int other = 0; other < size(); ++other) {
    if (is_silent(other)) return other;
  }
  // All ranks wait, so something has got lost: most likely where the way leads to another host.
  for (int step = 0, from = rank(), at = peer; step < size() && at >= 0; ++step) {
    if (hosts_.are_apart(from, at)) return at;
    from = std::exchange(at, known_[static_cast<std::size_t>(at)].waits_for);
  }
  return peer;
}

void Channel::hear(std::span<std::byte const> bytes) noexcept {
  if (bytes.size() != sizeof(Notice)) return;
  Notice notice;
  std::memcpy(&notice, bytes.data(), sizeof notice);
  if (notice.sender < 0 || notice.sender >= size_) return;
  std::lock_guard const lock(mutex_);
  auto& known = known_[static_cast<std::size_t>(notice.sender)];
  switch (notice.kind) {
    case Notice::Kind::hello: known.greeted = true; break;
    case Notice::Kind::here:
      if (notice.waits_for < 0 || notice.waits_for >= size_) return;
      known.waits_for = notice.waits_for;
      known.heard = Clock::now();
      break;
    case Notice::Kind::left:
      known.left = notice.sequence;
      if (notice.message[0] != '\0') note_failure(static_cast<ErrorCode>(notice.code), notice.message);
      break;
    case Notice::Kind::failed: note_failure(static_cast<ErrorCode>(notice.code), notice.message); break;
    case Notice::Kind::contradicted: known.contradicted = true; break;
  }
}

void Channel::tell(Notice const& notice, int to) noexcept {
  auto mine = notice;
  mine.sender = rank_;
  static_assert(sizeof mine <= Worker::kMostNoticeBytes);
  worker_.send_notice(to, std::as_bytes(std::span(&mine, 1)));
}

void Channel::tell_all(Notice const& notice, bool strangers) noexcept {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && (strangers || worker_.is_connected(peer))) tell(notice, peer);
  }
}

bool Channel::has_left(int peer) {
  std::lock_guard const lock(mutex_);
  return known_[static_cast<std::size_t>(peer)].left != Known::kStays;
}

bool Channel::has_greeted(int peer) {
  std::lock_guard const lock(mutex_);
  return !is_acquaintance(peer) || known_[static_cast<std::size_t>(peer)].greeted;
}

void Channel::contradict(int peer) noexcept {
  {
    std::lock_guard const lock(mutex_);
    known_[static_cast<std::size_t>(peer)].contradicted = true;
  }
  Notice notice;
  notice.kind = Notice::Kind::contradicted;
  if (peer != rank_) tell(notice, peer);
}

bool Channel::contradicted(int peer) {
  std::lock_guard const lock(mutex_);
  return known_[static_cast<std::size_t>(peer)].contradicted;
}

void Channel::note_failure(ErrorCode code, std::string const& message) noexcept {
  if (failed_.load()) return;
  code_ = code;
  message_ = message;
  failed_.store(true);
}

Channel::Notice Channel::failure() noexcept {
  Notice notice;
  notice.kind = Notice::Kind::failed;
  std::lock_guard const lock(mutex_);
  notice.code = static_cast<std::uint32_t>(code_);
  copy_text(message_, notice.message);
  return notice;
}

void Channel::fail(ErrorCode code, std::string const& message) noexcept {
  {
    std::lock_guard const lock(mutex_);
    if (failed_.load()) return;
    note_failure(code, message);
  }
  told_failure_.store(true);
  tell_failure();
}

void Channel::tell_failure() noexcept {
  tell_all(failure(), size_ <= kFewRanks);
  worker_.wake();
  worker_.flush_notices(Clock::now() + kLastNotices);
}

void Channel::fail_with(ErrorCode code, std::string const& message) {
  fail(code, message);
  throw_if_failed();
  throw Error(code, message);
}

void Channel::throw_if_failed(Purpose const* during) {
  if (!has_failed()) return;
  // Where ranks are few, the one that found the failure has told all. Where they are many, each passes it on, once.
  if (size_ > kFewRanks && !told_failure_.exchange(true)) tell_failure();
  std::lock_guard const lock(mutex_);
  if (code_ != ErrorCode::aborted || during == nullptr) throw Error(code_, message_);
  throw Error(code_, interrupting(message_, rank_, during->describe()));
}

}  // namespace weft::ucx
