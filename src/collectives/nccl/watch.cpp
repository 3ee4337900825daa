#include "collectives/nccl/watch.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "core/log.hpp"

namespace weft::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kNapBusy = 1ms;   // while calls are pending
constexpr auto kNapIdle = 10ms;  // so much later is noticed that another rank found a failure
constexpr auto kPeerLooks = 50ms;

/// A thread that leaves signals to the application's.
std::thread start_quietly(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Watch::Watch(Setup setup)
    : setup_(std::move(setup)),
      ring_(kMostPending),
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

void Watch::add(Call const& call, std::shared_ptr<cuda::CudaWork> work, bool captured) {
  auto const index = added_.load(std::memory_order_relaxed);
  // The GPU's own queues are full by then.
  while (index - taken_.load(std::memory_order_acquire) >= kMostPending) std::this_thread::sleep_for(50us);
  auto& pending = ring_[index % kMostPending];
  pending.call.contract = call.contract;
  pending.call.sequence = call.sequence;
  pending.call.timeout = call.timeout;
  pending.call.device = call.device;
  pending.call.on_stream = true;
  pending.work = std::move(work);
  pending.captured = captured;
  if (captured) captures_.store(true, std::memory_order_relaxed);
  added_.store(index + 1, std::memory_order_release);
}

void Watch::run() noexcept {
  pthread_setname_np(pthread_self(), "weft-nccl");
  // Looking at events must not break what another thread captures.
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
  if (busy) {
    auto const& first = ring_[taken % kMostPending];
    look_at_nccl(first.call);
    look_at_peers(first);
    look_at_time(first);
  } else if (captures_) {
    look_at_nccl({});
  }
  return busy;
}

void Watch::retire() {
  while (true) {
    auto const taken = taken_.load(std::memory_order_relaxed);
    if (added_.load(std::memory_order_acquire) == taken) return;
    auto& first = ring_[taken % kMostPending];
    if (first_ != taken) {
      first_ = taken;
      first_since_ = Clock::now();
      setup_.recorder->start(first.call);
      if (!first.captured) first.work->state.start();
    }
    if (!first.captured && !first.work->completion.reached()) return;
    retire_first();
  }
}

void Watch::retire_first() {
  auto const taken = taken_.load(std::memory_order_relaxed);
  auto& first = ring_[taken % kMostPending];
  setup_.recorder->finish(first.call);
  if (!is_point_to_point(first.call.contract.operation)) setup_.control->note_done(first.call.sequence);
  if (!first.captured) first.work->state.complete_once();
  first.work = nullptr;
  taken_.store(taken + 1, std::memory_order_release);
}

void Watch::compare_contracts() {
  auto const& control = *setup_.control;
  auto const mine = control.issued(control.rank());
  for (int peer = 0; peer < control.size(); ++peer) {
    if (peer == control.rank()) continue;
    auto& compared = compared_[static_cast<std::size_t>(peer)];
    auto const theirs = control.issued(peer);
    auto const last = std::min(mine, theirs);
    // What one of us has overwritten cannot be compared any more.
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

void Watch::look_at_peers(Pending const& first) {
  auto const now = Clock::now();
  if (now - peers_seen_ < kPeerLooks) return;
  peers_seen_ = now;
  auto const& control = *setup_.control;
  auto const message = is_point_to_point(first.call.contract.operation);
  for (int peer = 0; peer < control.size(); ++peer) {
    if (peer == control.rank()) continue;
    auto const state = setup_.peer_state(peer);
    if (state == PeerState::present) continue;
    bool const made = message ? state == PeerState::left : control.issued(peer) >= first.call.sequence;
    if (state == PeerState::died && (message || control.done(peer) < first.call.sequence)) {
      return fail(ErrorCode::peer_lost, fmt::format("rank {} died before completing {}; see its output for the cause",
                                                    peer, describe(first.call)));
    }
    if (state == PeerState::left && !made) {
      return fail(ErrorCode::peer_lost, fmt::format("rank {} left (its communicator was destroyed) before completing "
                                                    "{}; every rank must make the same calls",
                                                    peer, describe(first.call)));
    }
  }
}

std::string Watch::name_late(Call const& call, int& rank) const {
  auto const& control = *setup_.control;
  if (is_point_to_point(call.contract.operation)) return {};
  for (rank = 0; rank < control.size(); ++rank) {
    auto const made = control.issued(rank);
    if (made < call.sequence) return fmt::format("did not make it (it made {})", made);
  }
  for (rank = 0; rank < control.size(); ++rank) {
    if (rank != control.rank() && control.done(rank) < call.sequence) return "enqueued it and is not through either";
  }
  rank = control.rank();
  return "is not through, though the other ranks are";
}

void Watch::look_at_time(Pending const& first) {
  if (Clock::now() - first_since_ < first.call.timeout) return;
  int late = setup_.control->rank();
  auto const how = name_late(first.call, late);
  fail(ErrorCode::timeout,
       fmt::format("rank {}: {} on {} is not through after {} ms{}; it, or what its stream does before it, is stuck or "
                   "slow: look there, or raise WEFT_TIMEOUT",
                   setup_.control->rank(), describe(first.call), to_string(first.call.device),
                   first.call.timeout.count(), how.empty() ? "" : fmt::format(": rank {} {}", late, how)));
}

void Watch::look_at_nccl(Call const& call) {
  auto const state = setup_.communicator->async_error();
  if (state == ncclSuccess || state == ncclInProgress) return;
  auto const& nccl = setup_.communicator->nccl();
  fail(state == ncclRemoteError ? ErrorCode::peer_lost : ErrorCode::system,
       fmt::format("rank {}: NCCL failed during {}: {} (NCCL_DEBUG=WARN says more)", setup_.control->rank(),
                   call.sequence == 0 ? "a CUDA graph" : describe(call), nccl.get_error_string(state)));
}

void Watch::hear() {
  if (failure_->is_set()) return;
  if (auto const decided = setup_.control->failure()) end_with(*decided);
}

void Watch::throw_failure() {
  hear();
  while (!failure_->is_set()) std::this_thread::yield();  // another thread is about to
  std::rethrow_exception(failure_->get());
}

void Watch::fail(ErrorCode code, std::string const& message) noexcept {
  try {
    setup_.control->fail(code, message);
    // All ranks tell the failure that was decided first; it is there, or on its way.
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

// Whoever's Work has failed may free the buffers, so the GPU should be through with them; but where its stream is stuck
// for another reason nobody learns of the failure if this waits for it.
void Watch::drop_all() {
  constexpr auto kPatience = 500ms;
  if (!setup_.communicator->is_stopped()) retire();  // what is through by now did succeed
  setup_.communicator->stop();
  auto const deadline = Clock::now() + kPatience;
  auto const error = failure_->get();
  for (auto taken = taken_.load(std::memory_order_relaxed); taken != added_.load(std::memory_order_acquire); ++taken) {
    auto& pending = ring_[taken % kMostPending];
    auto const& work = pending.work;
    while (!pending.captured && !work->completion.reached() && Clock::now() < deadline)
      std::this_thread::sleep_for(50us);
    try {
      std::rethrow_exception(error);
    } catch (std::exception const& why) {
      setup_.recorder->start(pending.call);
      setup_.recorder->fail(pending.call, why);
    }
    if (!pending.captured) work->state.complete_once(error);
    pending.work = nullptr;
    taken_.store(taken + 1, std::memory_order_release);
  }
}

}  // namespace weft::nccl
