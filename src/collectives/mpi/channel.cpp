#include "collectives/mpi/channel.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/abort_text.hpp"
#include "core/copy_text.hpp"

namespace weft::mpi {
namespace {

constexpr int kBarePolls = 8;      // polls before the thread offers its core to others between polls
constexpr int kPollsPerLook = 64;  // polls between two looks at notices
constexpr auto kPatience = std::chrono::milliseconds(2);
constexpr auto kStreamPatience = std::chrono::microseconds(20);  // a communication thread beside computation
constexpr auto kFirstNap = std::chrono::microseconds(20);
constexpr auto kLongestNap = std::chrono::microseconds(500);
/// A rank that has waited this long tells the others, so that a timeout can name the missing rank.
constexpr auto kLongWait = std::chrono::milliseconds(50);
/// How often within a time limit a waiting rank says that it waits.
constexpr int kTellings = 8;
/// How long to make MPI progress for last notices, which might not leave once this rank no longer calls MPI.
constexpr auto kLastWords = std::chrono::milliseconds(50);

std::string describe_leaver(Call const& call, int peer, RankHosts const& hosts) {
  return fmt::format(
      "rank {} left (its communicator was destroyed) before completing {}; every rank must make the same calls{}", peer,
      describe(call), hosts.where_is(peer));
}

/// "rank 3", "rank 1, 2 or 3".
std::string name_any_of(std::vector<int> const& ranks) {
  if (ranks.empty()) return "some rank";
  auto text = fmt::format("rank {}", ranks.front());
  for (std::size_t i = 1; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i + 1 < ranks.size() ? ", " : " or ", ranks[i]);
  return text;
}

}  // namespace

Channel::Channel(std::shared_ptr<MpiCommunicator> communicator, std::size_t block, CommunicatorOptions const& options,
                 RankHosts hosts)
    : communicator_(std::move(communicator)),
      hosts_(std::move(hosts)),
      patience_(options.config->spin ? Clock::duration(*options.config->spin) : Clock::duration(kPatience)),
      progress_(options.progress),
      here_(static_cast<std::size_t>(communicator_->size())),
      heard_(static_cast<std::size_t>(communicator_->size())),
      left_(static_cast<std::size_t>(communicator_->size()), kStays),
      contradicted_(static_cast<std::size_t>(communicator_->size())) {
  communicator_->session().sweep();
  auto const turn = communicator_->session().enter();
  memory_ = std::make_unique<MpiMemory>(communicator_->handle(), size(), block);
  communicator_->abandon();  // MpiMemory frees it
}

Channel::~Channel() {
  auto& session = communicator_->session();
  if (!session.admits_this_thread()) memory_->give_up();
  if (failed_.load() || untidy_) {
    std::lock_guard const lock(mutex_);
    tell_failure();
    memory_->give_up();
  }
  if (!memory_->failed) {
    try {
      auto const turn = session.enter();
      memory_->depart(latest_, rank());
    } catch (Error const&) {  // the other ranks notice by their timeouts
      memory_->give_up();
    }
  }
  session.keep(std::move(memory_));
  session.sweep();
}

void Channel::announce(Call const& call, void const* payload, std::size_t bytes) {
  {
    std::lock_guard const lock(mutex_);
    hear();
  }
  latest_ = call.sequence;
  auto& mine = memory_->mine;
  mine = {};
  mine.sequence = call.sequence;
  mine.contract = PackedContract(call.contract);
  mine.scale = call.scale;
  if (bytes > 0) std::memcpy(mine.payload, payload, bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  start(
      call, "MPI_Iallgather",
      [this](MPI_Request& started) {
        return MPI_Iallgather(&memory_->mine, sizeof(Announcement), MPI_BYTE, memory_->all.data(), sizeof(Announcement),
                              MPI_BYTE, handle(), &started);
      },
      request);
  wait(call, request);
  announced_ = call.sequence;
  check_announcements(call);
  if (call.met != nullptr) *call.met = Clock::now();
}

void Channel::check_announcements(Call const& call) {
  for (int peer = 0; peer < size(); ++peer) {
    if (announcement_of(peer).sequence == 0) fail_with(ErrorCode::peer_lost, describe_leaver(call, peer, hosts_));
  }
  auto const differs = [&](int peer) { return announcement_of(peer).contract != announcement_of(rank()).contract; };
  for (int peer = 0; peer < size(); ++peer) {
    if (!differs(peer)) continue;
    throw Error(ErrorCode::mismatch,
                describe_mismatch(call.number(), rank(), call.contract, peer, announcement_of(peer).contract.unpack()) +
                    " (nothing was moved)");
  }
}

void Channel::start(Call const& call, char const* name, std::function<int(MPI_Request&)> const& begin,
                    MPI_Request& request) {
  throw_if_failed(&call);
  try {
    auto const turn = communicator_->session().enter();
    check_mpi(begin(request), name);
  } catch (Error const& error) {
    fail_with(error.code(), fmt::format("rank {}: {}: {}", rank(), describe(call), error.what()));
  }
}

bool Channel::test(Call const& call, MPI_Request& request) {
  int done = 0;
  try {
    auto const turn = communicator_->session().enter();
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  } catch (Error const& error) {
    fail_with(error.code(), fmt::format("rank {}: {}: {}", rank(), describe(call), error.what()));
  }
  return done != 0;
}

void Channel::wait(Call const& call, MPI_Request& request) {
  await(call, [&] { return test(call, request); });
}

void Channel::await(Call const& call, std::function<bool()> const& ready, int const& peer) {
  for (int poll = 0; poll < kBarePolls; ++poll) {
    if (ready()) return;
  }
  auto const start = Clock::now();
  auto const patience =
      call.on_stream && !call.waited_for ? std::min<Clock::duration>(patience_, kStreamPatience) : patience_;
  auto nap = Clock::duration(kFirstNap);
  for (int poll = 1; !ready(); ++poll) {
    auto const waited = Clock::now() - start;
    if (progress_) progress_();
    if (waited < patience && yielder_.yield()) {
      if (poll % kPollsPerLook != 0) continue;
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min<Clock::duration>(nap * 2, kLongestNap);
    }
    look_around(call, peer, waited, ready);
  }
}

bool Channel::has_come_after_all(std::function<bool()> const& ready) {
  for (int poll = 0; poll < kBarePolls; ++poll) {
    if (ready()) return true;
  }
  return false;
}

void Channel::look_around(Call const& call, int peer, Clock::duration waited, std::function<bool()> const& ready) {
  auto const limit = Clock::duration(call.timeout);
  auto const is_long = waited >= std::min<Clock::duration>(kLongWait, limit / 4);
  {
    std::lock_guard const lock(mutex_);
    hear();
    tell_failure();
    if (is_long && peer == kEverybody && !failed_.load()) say_waiting(call);
  }
  if (failed_.load() && has_come_after_all(ready)) return;
  throw_if_failed(&call);
  if (!is_long) return;
  auto const absent = find_absent(call, peer);
  if (!absent.left && waited < limit) return;
  if (has_come_after_all(ready)) return;  // a rank finished this call before it left, while this rank slept
  if (absent.left) fail_with(ErrorCode::peer_lost, describe_leaver(call, absent.ranks.front(), hosts_));
  fail_for_late(call, absent.ranks);
}

void Channel::fail_for_late(Call const& call, std::vector<int> const& late) {
  fail_with(ErrorCode::timeout,
            fmt::format("{} did not complete {} within {} ms (rank {} waited); it is stuck, slow or made fewer calls: "
                        "look there, or raise the time limit (WEFT_TIMEOUT or the call's own){}",
                        name_any_of(late), describe(call), call.timeout.count(), rank(),
                        late.size() == 1 ? hosts_.where_is(late.front()) : ""));
}

void Channel::look_around_inside(Call inside, int peer, std::function<bool()> const& ready,
                                 std::chrono::nanoseconds waited) {
  inside.sequence = latest_;
  auto const limit = Clock::duration(inside.timeout);
  {
    std::lock_guard const lock(mutex_);
    hear();
    tell_failure();
    if (waited >= std::min<Clock::duration>(kLongWait, limit / 4) && !failed_.load()) say_waiting(inside);
  }
  throw_if_failed(&inside);
  if (waited < limit) return;
  auto const late = find_absent(inside, kEverybody).ranks;
  if (late.empty() || ready()) return;  // the caller of `inside` knows better which rank is late
  auto const is_peer = std::find(late.begin(), late.end(), peer) != late.end();
  fail_for_late(inside, is_peer ? std::vector{peer} : late);
}

void Channel::say_waiting(Call const& call) noexcept {
  Notice notice;
  notice.kind = announced_ >= call.sequence ? Notice::Kind::moving : Notice::Kind::here;
  notice.sequence = call.sequence;
  auto const now = Clock::now();
  bool const told = told_.kind == notice.kind && told_.sequence == notice.sequence;
  if (told && now - told_at_ < Clock::duration(call.timeout) / kTellings) return;
  told_ = notice;
  told_at_ = now;
  try {
    auto const turn = communicator_->session().enter();
    memory_->send_notice_to_all(notice, rank());
  } catch (Error const& error) {
    note_failure(error.code(), error.what());
  }
}

Channel::Absence Channel::find_absent(Call const& call, int peer) {
  std::lock_guard const lock(mutex_);
  if (peer != kEverybody) return {{peer}, left_[static_cast<std::size_t>(peer)] != kStays};
  bool const moving = announced_ >= call.sequence;
  auto const silent_since = Clock::now() - Clock::duration(call.timeout) / 2;
  std::vector<int> missing;  // ranks that are not known to have done their part
  std::vector<int> silent;   // those of them that do not say that they wait, too
  for (int other = 0; other < size(); ++other) {
    auto const index = static_cast<std::size_t>(other);
    if (other == rank()) continue;
    if (!moving && left_[index] < call.sequence) return {{other}, true};
    bool const has_come = moving ? here_[index] > call.sequence : here_[index] >= call.sequence;
    if (has_come || left_[index] != kStays) continue;
    missing.push_back(other);
    if (heard_[index] < silent_since) silent.push_back(other);
  }
  // While data moves, a rank that has its data goes on without a notice, so any of the silent ranks may be to blame.
  if (moving) return {silent};
  auto const& blamed = silent.empty() ? missing : silent;
  return {{blamed.begin(), blamed.begin() + (blamed.empty() ? 0 : 1)}};
}

void Channel::hear() noexcept {
  try {
    Notice notice;
    int from = 0;
    auto const turn = communicator_->session().enter();
    while (memory_->take_notice(notice, from)) {
      auto const index = static_cast<std::size_t>(from);
      heard_[index] = Clock::now();
      switch (notice.kind) {
        case Notice::Kind::here: here_[index] = std::max(here_[index], notice.sequence); break;
        case Notice::Kind::moving: break;
        case Notice::Kind::left: left_[index] = notice.sequence; break;
        case Notice::Kind::failed: note_failure(static_cast<ErrorCode>(notice.code), notice.message); break;
        case Notice::Kind::contradicted: contradicted_[index] = 1; break;
      }
    }
  } catch (Error const& error) {
    note_failure(error.code(), error.what());
  }
}

Channel::Cancelled Channel::cancel(MPI_Request& request) noexcept {
  if (!communicator_->session().admits_this_thread()) return Cancelled::no;
  try {
    auto const turn = communicator_->session().enter();
    if (request == MPI_REQUEST_NULL) return Cancelled::has_come;
    MPI_Status status;
    check_mpi(MPI_Cancel(&request), "MPI_Cancel");
    check_mpi(MPI_Wait(&request, &status), "MPI_Wait");
    int cancelled = 0;
    check_mpi(MPI_Test_cancelled(&status, &cancelled), "MPI_Test_cancelled");
    return cancelled != 0 ? Cancelled::yes : Cancelled::has_come;
  } catch (Error const& error) {
    std::lock_guard const lock(mutex_);
    note_failure(error.code(), error.what());
    return Cancelled::no;
  }
}

bool Channel::has_left(int peer) {
  std::lock_guard const lock(mutex_);
  hear();
  return left_[static_cast<std::size_t>(peer)] != kStays;
}

void Channel::contradict(int peer) noexcept {
  std::lock_guard const lock(mutex_);
  contradicted_[static_cast<std::size_t>(peer)] = 1;
  untidy_ = true;
  Notice notice;
  notice.kind = Notice::Kind::contradicted;
  try {
    auto const turn = communicator_->session().enter();
    if (peer != rank()) memory_->send_notice(notice, peer);
  } catch (Error const& error) {
    note_failure(error.code(), error.what());
  }
}

bool Channel::contradicted(int peer) {
  std::lock_guard const lock(mutex_);
  hear();
  return contradicted_[static_cast<std::size_t>(peer)] != 0;
}

void Channel::leave_behind(std::shared_ptr<void> memory) {
  std::lock_guard const lock(mutex_);
  untidy_ = true;
  memory_->keep(std::move(memory));
}

void Channel::note_failure(ErrorCode code, std::string const& message) noexcept {
  if (failed_.load()) return;
  code_ = code;
  message_ = message;
  failed_.store(true);
}

void Channel::fail(ErrorCode code, std::string const& message) noexcept {
  std::lock_guard const lock(mutex_);
  if (failed_.load()) return;
  note_failure(code, message);
  untold_ = true;
  tell_failure();
}

void Channel::tell_failure() noexcept {
  if (!untold_ || !communicator_->session().admits_this_thread()) return;
  untold_ = false;
  Notice notice;
  notice.kind = Notice::Kind::failed;
  notice.code = static_cast<std::uint32_t>(code_);
  copy_text(message_, notice.message);
  try {
    auto const turn = communicator_->session().enter();
    memory_->send_notice_to_all(notice, rank());
  } catch (Error const&) {
    return;  // MPI itself has failed: the other ranks see that too, or time out
  }
  auto const until = Clock::now() + kLastWords;
  for (hear(); !memory_->notices_sent() && Clock::now() < until; hear()) ::sched_yield();
}

void Channel::fail_with(ErrorCode code, std::string const& message) {
  fail(code, message);
  throw_if_failed();
  throw Error(code, message);
}

void Channel::throw_if_failed(Call const* during) {
  if (!failed_.load()) return;
  std::lock_guard const lock(mutex_);
  tell_failure();
  if (code_ != ErrorCode::aborted || during == nullptr) throw Error(code_, message_);
  throw Error(code_, interrupting(message_, rank(), describe(*during)));
}

}  // namespace weft::mpi
