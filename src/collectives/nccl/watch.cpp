#include "collectives/nccl/watch.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "collectives/still_in_use.hpp"
#include "core/log.hpp"
#include "core/quiet_thread.hpp"

namespace weft::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kNapBusy = 1ms;   // while calls are pending
constexpr auto kNapIdle = 10ms;  // the most by which another rank's failure is noticed late
constexpr auto kPeerLooks = 50ms;

}  // namespace

Watch::Watch(Setup setup)
    : setup_(std::move(setup)),
      failure_(std::make_shared<cuda::SharedFailure>([board = setup_.control->board()] { return board.error(); })),
      compared_(static_cast<std::size_t>(setup_.control->size())),
      thread_(start_quietly([this] { run(); })) {}

Watch::~Watch() {
  {
    std::scoped_lock const lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watch::add(Call const& call, std::shared_ptr<cuda::CudaWork> work) {
  auto const index = added_.load(std::memory_order_relaxed);
  // With so many calls pending, the GPU's own queues are full, too.
  while (index - taken_.load(std::memory_order_acquire) >= kMostPending) std::this_thread::sleep_for(50us);
  auto& pending = ring_[index % kMostPending];
  pending.contract = call.contract;
  pending.sequence = call.sequence;
  pending.timeout = call.timeout;
  pending.work = std::move(work);
  if (pending.captured()) captures_.store(true, std::memory_order_relaxed);
  added_.store(index + 1, std::memory_order_release);
  prefetch_for_write(&ring_[(index + 1) % kMostPending]);  // the watch's core has it
}

// The messages must be in transfers_ before the watch can find them finished.
void Watch::add(Call const& transfer, std::span<Message const> messages, std::shared_ptr<cuda::CudaWork> work) {
  {
    std::scoped_lock const lock(transfers_mutex_);
    transfers_.emplace_back(*setup_.recorder, messages);
  }
  add(transfer, std::move(work));
}

Call Watch::call_of(Pending const& pending) const {
  Call call;
  call.contract = pending.contract;
  call.sequence = pending.sequence;
  call.timeout = pending.timeout;
  call.device = {DeviceType::cuda, setup_.communicator->libraries().device};
  call.on_stream = true;
  return call;
}

void Watch::run() noexcept {
  pthread_setname_np(pthread_self(), "weft-nccl");
  // This thread queries events, which must not invalidate a capture in another thread.
  auto mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(setup_.cuda->thread_exchange_stream_capture_mode(&mode));
  while (true) {
    bool busy = true;
    try {
      busy = look();
    } catch (std::exception const& error) {
      fail(ErrorCode::system, fmt::format("rank {}: {}", setup_.control->rank(), error.what()));
    }
    std::unique_lock lock(mutex_);
    if (ending_ && !busy) break;
    changed_.wait_for(lock, busy || ending_ ? kNapBusy : kNapIdle);
  }
  if (failure_->is_set()) drop_all();
}

bool Watch::look() {
  hear();
  if (failure_->is_set()) {
    drop_all();
    return false;
  }
  retire();
  compare_contracts();
  auto const taken = taken_.load(std::memory_order_relaxed);
  bool const busy = added_.load(std::memory_order_acquire) != taken;
  if (busy && first_ == taken) {  // otherwise the call came after retire(), and first_since_ is not about it
    auto const& first = ring_[taken % kMostPending];
    look_at_nccl(call_of(first));
    look_at_peers(first);
    look_at_time(first);
  } else if (captures_) {
    look_at_nccl({});
  }
  return busy;
}

void Watch::retire() {
  auto taken = taken_.load(std::memory_order_relaxed);
  auto const added = added_.load(std::memory_order_acquire);
  if (taken == added) return;
  begin_first();
  auto const end = end_of_reached(taken, added);
  // A rank that fails stops NCCL, and then the other ranks' kernels end too, with incomplete results. So look for a
  // failure after seeing that calls have ended.
  if (setup_.control->has_failed()) return;
  for (; taken < end; ++taken) {
    begin_first();
    retire_first();
  }
  if (taken < added) begin_first();
}

void Watch::begin_first() {
  auto const taken = taken_.load(std::memory_order_relaxed);
  if (first_ == taken) return;
  auto& first = ring_[taken % kMostPending];
  first_ = taken;
  first_since_ = Clock::now();
  if (!is_point_to_point(first.contract.operation)) setup_.recorder->start(call_of(first));
  if (!first.captured()) first.work->state.start();
}

bool Watch::is_reached(Pending const& pending) const {
  if (pending.captured()) return true;
  if (!pending.work->completion.reached()) return false;
  try {
    pending.work->completion.throw_if_broken();
  } catch (Error const& error) {
    auto const call = call_of(pending);
    throw Error(error.code(), fmt::format("{} on {}, or what its stream does before it, failed: {}", describe(call),
                                          to_string(call.device), error.what()));
  }
  return true;
}

// Querying an event takes locks that enqueueing threads need too, so as few events as possible are queried. A
// communicator's calls run one after the other, so this searches with doubling steps from the last call known to be
// finished, then with halving ones.
std::uint64_t Watch::end_of_reached(std::uint64_t taken, std::uint64_t added) const {
  auto const reached = [&](std::uint64_t index) { return is_reached(ring_[index % kMostPending]); };
  if (captures_) {  // captured calls run when their graph is launched, not in the order of calls
    auto end = taken;
    while (end < added && reached(end)) ++end;
    return end;
  }
  auto end = taken;
  std::uint64_t step = 1;
  while (end + step <= added && reached(end + step - 1)) {
    end += step;
    step *= 2;
  }
  for (step /= 2; step > 0; step /= 2) {
    if (end + step <= added && reached(end + step - 1)) end += step;
  }
  return end;
}

// Messages have their own numbers and their own ring in the flight recorder.
void Watch::record_first(Pending const& first, std::exception const* error) {
  auto& recorder = *setup_.recorder;
  if (!is_point_to_point(first.contract.operation))
    return error == nullptr ? recorder.finish(call_of(first)) : recorder.fail(call_of(first), *error);
  std::scoped_lock const lock(transfers_mutex_);
  auto& record = transfers_.front().record;
  record.finish(error == nullptr ? FlightState::finished : FlightState::failed);
  if (error != nullptr) recorder.fail(record, *error);
  transfers_.pop_front();
}

void Watch::retire_first() {
  auto const taken = taken_.load(std::memory_order_relaxed);
  auto& first = ring_[taken % kMostPending];
  record_first(first, nullptr);
  if (!is_point_to_point(first.contract.operation)) setup_.control->note_done(first.sequence);
  if (!first.captured()) first.work->state.complete_once();
  first.work = nullptr;
  taken_.store(taken + 1, std::memory_order_release);
}

void Watch::compare_contracts() {
  auto const& control = *setup_.control;
  auto const mine = control.issued(control.rank());
  for (int peer = 0; peer < control.size(); ++peer) {
    if (peer == control.rank()) continue;
    auto& [compared, given, expected] = compared_[static_cast<std::size_t>(peer)];
    compare_pieces(control.rank(), peer, given);
    compare_pieces(peer, control.rank(), expected);
    auto const theirs = control.issued(peer);
    auto const last = std::min(mine, theirs);
    // Entries that either rank has overwritten cannot be compared any more.
    auto const newest = std::max(mine, theirs);
    auto const oldest = newest >= ControlLines::kRemembered ? newest - ControlLines::kRemembered + 2 : 1;
    for (auto next = std::max(compared + 1, oldest); next <= last && !failure_->is_set(); ++next)
      compare_contract(peer, next);
    compared = std::max(compared, last);
  }
}

void Watch::compare_contract(int peer, std::uint64_t sequence) {
  auto const& control = *setup_.control;
  auto const mine = control.recall(control.rank(), sequence);
  auto const theirs = control.recall(peer, sequence);
  if (!mine || !theirs || *mine == *theirs) return;
  auto const first = std::min(peer, control.rank());
  auto const second = std::max(peer, control.rank());
  auto const& of_first = first == peer ? *theirs : *mine;
  auto const& of_second = first == peer ? *mine : *theirs;
  fail(ErrorCode::mismatch, describe_mismatch(sequence, first, of_first, second, of_second));
}

void Watch::compare_pieces(int giver, int taker, std::uint64_t& compared) {
  using Side = Ledger::Side;
  auto const& ledger = setup_.control->ledger();
  auto const given = ledger.count(Side::given, giver, taker);
  auto const expected = ledger.count(Side::expected, taker, giver);
  auto const last = std::min(given, expected);
  auto const newest = std::max(given, expected);
  auto const oldest = newest >= Ledger::kRemembered ? newest - Ledger::kRemembered + 2 : 1;
  for (auto number = std::max(compared + 1, oldest); number <= last && !failure_->is_set(); ++number) {
    auto const gives = ledger.recall(Side::given, giver, taker, number);
    auto const expects = ledger.recall(Side::expected, taker, giver, number);
    if (!gives || !expects || *gives == *expects) continue;
    fail(ErrorCode::mismatch,
         fmt::format(
             "what rank {} gives rank {} on GPUs for the {}. time is {}, but rank {} expects {}; make both equal, "
             "in the same order",
             giver, taker, number, describe(*gives, Side::given), taker, describe(*expects, Side::expected)));
  }
  compared = std::max(compared, last);
}

std::string Watch::where(Call const& call, int peer) const {
  auto const& control = *setup_.control;
  auto const made = control.issued(peer);
  return fmt::format("{} on {} (it made {} collective call{} there; rank {} waited)", describe(call),
                     to_string(call.device), made, made == 1 ? "" : "s", control.rank());
}

void Watch::look_at_peers(Pending const& first) {
  auto const now = Clock::now();
  if (now - peers_seen_ < kPeerLooks) return;
  peers_seen_ = now;
  auto const& control = *setup_.control;
  auto const message = is_point_to_point(first.contract.operation);
  for (int peer = 0; peer < control.size(); ++peer) {
    if (peer == control.rank()) continue;
    auto const state = setup_.peer_state(peer);
    if (state == PeerState::present) continue;
    bool const made = message ? state == PeerState::left : control.issued(peer) >= first.sequence;
    if (state == PeerState::died && (message || control.done(peer) < first.sequence)) {
      return fail(ErrorCode::peer_lost,
                  fmt::format("rank {} died before completing {}; see its output for the cause, or "
                              "go on without it by shrink()",
                              peer, where(call_of(first), peer)));
    }
    if (state == PeerState::left && !made) {
      return fail(ErrorCode::peer_lost, fmt::format("rank {} left (its communicator was destroyed) before completing "
                                                    "{}; every rank must make the same calls",
                                                    peer, where(call_of(first), peer)));
    }
  }
}

std::string Watch::name_late_peer() const {
  using Side = Ledger::Side;
  auto& control = *setup_.control;
  auto const& ledger = control.ledger();
  auto const me = control.rank();
  for (int peer = 0; peer < control.size(); ++peer) {
    auto const received = ledger.count(Side::expected, peer, me);
    if (received < ledger.count(Side::given, me, peer)) {
      return fmt::format("rank {} did not receive all that rank {} sends it (it received {} times)", peer, me,
                         received);
    }
    auto const sent = ledger.count(Side::given, peer, me);
    if (sent < ledger.count(Side::expected, me, peer)) {
      return fmt::format("rank {} did not send all that rank {} expects of it (it sent {} times)", peer, me, sent);
    }
  }
  return {};
}

std::string Watch::name_late(Call const& call) const {
  auto const& control = *setup_.control;
  if (is_point_to_point(call.contract.operation)) return name_late_peer();
  for (int rank = 0; rank < control.size(); ++rank) {
    auto const made = control.issued(rank);
    if (made < call.sequence) return fmt::format("rank {} did not make it (it made {})", rank, made);
  }
  for (int rank = 0; rank < control.size(); ++rank) {
    if (rank != control.rank() && control.done(rank) < call.sequence)
      return fmt::format("rank {} enqueued it and is not through either", rank);
  }
  return fmt::format("rank {} is not through, though the other ranks are", control.rank());
}

void Watch::look_at_time(Pending const& first) {
  if (Clock::now() - first_since_ < first.timeout) return;
  auto const call = call_of(first);
  auto const late = name_late(call);
  fail(ErrorCode::timeout,
       fmt::format(
           "rank {}: {} on {} is not through after {} ms{}{}; it, or what its stream does before it, is stuck or "
           "slow: look there, or raise WEFT_TIMEOUT",
           setup_.control->rank(), describe(call), to_string(call.device), call.timeout.count(),
           late.empty() ? "" : ": ", late));
}

void Watch::look_at_nccl(Call const& call) {
  auto const state = setup_.communicator->async_error();
  if (state == ncclSuccess || state == ncclInProgress) return;
  if (call.sequence != 0 && may_be_named(state)) return;
  auto const& nccl = setup_.communicator->nccl();
  fail(state == ncclRemoteError ? ErrorCode::peer_lost : ErrorCode::system,
       fmt::format("rank {}: NCCL failed during {} on {}: {}; NCCL_DEBUG=WARN says more", setup_.control->rank(),
                   call.sequence == 0 ? "a CUDA graph" : describe(call),
                   to_string(Device{DeviceType::cuda, setup_.communicator->libraries().device}),
                   nccl.get_error_string(state)));
}

// A dying process first closes its sockets, which NCCL notices; it is gone only once its GPU memory has been released.
bool Watch::may_be_named(ncclResult_t state) {
  constexpr auto kPatience = 3s;
  if (state != ncclRemoteError && state != ncclSystemError) return false;
  auto const now = Clock::now();
  if (lost_at_ == Clock::time_point()) lost_at_ = now;
  return now - lost_at_ < kPatience;
}

void Watch::hear() {
  if (failure_->is_set()) return;
  if (auto const decided = setup_.control->failure()) end_with(*decided);
}

void Watch::throw_failure() {
  hear();
  while (!failure_->is_set()) std::this_thread::yield();  // another thread is about to set it
  std::rethrow_exception(failure_->get());
}

void Watch::fail(ErrorCode code, std::string const& message) noexcept {
  try {
    setup_.control->fail(code, message);
    // All ranks report the failure that was recorded first. It is readable now or, if a rank is writing it, soon.
    for (int looks = 0; looks < 100; ++looks) {
      if (auto const decided = setup_.control->failure()) return end_with(*decided);
      std::this_thread::sleep_for(1ms);
    }
    end_with(Error(code, message));
  } catch (std::exception const& error) {
    log(LogLevel::error, fmt::format("rank {}: {}: {}", setup_.control->rank(), message, error.what()));
  }
}

void Watch::end_with(Error const& error) {
  failure_->set(std::make_exception_ptr(error));
  changed_.notify_all();
}

// Once a Work has failed its owner may free the buffers, so the GPU must have finished with them before. If the stream
// is stuck, aborting NCCL ends their use; if the abort is stuck too, waiting longer would only hide the failure.
bool Watch::await_release(Pending const& pending) {
  constexpr auto kPatience = 500ms;
  auto const reached = [&] { return pending.captured() || pending.work->completion.reached(); };
  for (auto const deadline = stopped_at_ + kPatience; !reached() && Clock::now() < deadline;)
    std::this_thread::sleep_for(50us);
  if (reached()) return true;
  return setup_.communicator->abort([&] { return reached(); }) || reached();
}

// A caller that waited for the call saw it finish before there was a failure.
bool Watch::has_succeeded(Pending const& pending) noexcept {
  return !pending.captured() && pending.work->state.done() && !pending.work->state.error();
}

void Watch::drop_all() {
  setup_.communicator->stop();
  if (stopped_at_ == Clock::time_point()) stopped_at_ = Clock::now();
  auto const error = failure_->get();
  for (auto taken = taken_.load(std::memory_order_relaxed); taken != added_.load(std::memory_order_acquire); ++taken) {
    auto& pending = ring_[taken % kMostPending];
    if (has_succeeded(pending)) {
      begin_first();
      retire_first();
      continue;
    }
    auto const call = call_of(pending);
    auto const why = await_release(pending) ? error : still_in_use(error, call);
    try {
      std::rethrow_exception(why);
    } catch (std::exception const& said) {
      if (!is_point_to_point(call.contract.operation)) setup_.recorder->start(call);
      record_first(pending, &said);
    }
    if (!pending.captured()) pending.work->state.complete_once(why);
    pending.work = nullptr;
    taken_.store(taken + 1, std::memory_order_release);
  }
  dropped_.store(true, std::memory_order_release);
}

void Watch::await_dropped() const {
  while (!dropped_.load(std::memory_order_acquire)) std::this_thread::sleep_for(100us);
}

}  // namespace weft::nccl
