#include "collectives/nccl/nccl_communicator.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/outcome.hpp"
#include "core/log.hpp"
#include "runtime/cuda/check.hpp"
#include "weft/error.hpp"

namespace weft::nccl {
namespace {

using Clock = std::chrono::steady_clock;

#ifndef NCCL_REVOKE_DEFAULT
#define NCCL_REVOKE_DEFAULT 0
#endif

constexpr auto kMostForChild = std::chrono::seconds(20);
constexpr auto kMostForAbort = std::chrono::seconds(5);

/// Gives every rank the unique id that rank 0 gets from NCCL.
ncclUniqueId agree_on_id(NcclFunctions const& nccl, Bootstrap& bootstrap) {
  ncclUniqueId id{};
  Outcome outcome;
  try {
    if (bootstrap.rank() == 0) check(nccl, nccl.get_unique_id(&id), "ncclGetUniqueId");
  } catch (Error const& error) {
    outcome = Outcome::of(error);
  }
  agree(bootstrap, outcome);
  auto const all = bootstrap.all_gather(std::as_bytes(std::span(&id, 1)));
  std::memcpy(&id, all.data(), sizeof id);
  return id;
}

}  // namespace

ncclConfig_t communicator_config() noexcept {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

NcclCommunicator::Use::Use(NcclCommunicator& of) : of_(of), turn_(of.turn_) {
  if (of_.aborted_.load()) throw Error(ErrorCode::aborted, "NCCL's communicator was aborted");
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::create(Libraries libraries, Bootstrap& bootstrap, Timeout timeout) {
  auto const& nccl = libraries.nccl->functions;
  auto const id = agree_on_id(nccl, bootstrap);
  Outcome outcome;
  std::shared_ptr<NcclCommunicator> made;
  try {
    cuda::DeviceGuard const guard(libraries.device, *libraries.cuda);
    made.reset(new NcclCommunicator(std::move(libraries), timeout));
    auto config = communicator_config();
    auto const result = nccl.comm_init_rank_config(&made->handle_, bootstrap.size(), id, bootstrap.rank(), &config);
    made->settle_within(made->most(), result, "ncclCommInitRankConfig");
  } catch (Error const& error) {
    outcome = Outcome::of(error);
    if (made && made->handle_ != nullptr) made->abort_briefly();  // a communicator in the making cannot be revoked
  }
  agree(bootstrap, outcome);
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_ == nullptr || aborted_) return;
  try {
    cuda::DeviceGuard const guard(libraries_.device, *libraries_.cuda);
    auto const deadline = Clock::now() + timeout_;
    // A revoked communicator must not be finalized: nothing is under way on it.
    auto result = stopped_ ? ncclSuccess : nccl().comm_finalize(handle_);
    if (result == ncclSuccess || result == ncclInProgress) result = poll(deadline);
    if (result == ncclSuccess) {
      result = nccl().comm_destroy(handle_);
      if (result == ncclSuccess || result == ncclInProgress) return;
    }
    log(LogLevel::warn,
        fmt::format("NCCL's communicator did not end by itself ({}); aborted", nccl().get_error_string(result)));
  } catch (std::exception const& error) {
    log(LogLevel::warn, fmt::format("NCCL's communicator: {}; aborted", error.what()));
  }
  static_cast<void>(abort());
}

// NCCL launches the calls of several ranks from a thread of its own. Once connections are made this takes tens of
// microseconds, less than a nap, so polling spins first.
ncclResult_t NcclCommunicator::poll(Clock::time_point deadline) {
  constexpr auto kSpin = std::chrono::microseconds(500);
  constexpr auto kMostNap = std::chrono::microseconds(1000);
  // A call made just before the stop may still be launched, on a stream whose owner learns of the failure now and frees
  // it. So polling goes on for a moment, which is shorter than stop() waits for the thread in here.
  constexpr auto kLinger = std::chrono::milliseconds(50);
  bool lingers = is_stopped();
  auto nap = std::chrono::microseconds(20);
  for (auto const began = Clock::now();;) {
    ncclResult_t state = ncclSuccess;
    auto const asked = nccl().comm_get_async_error(handle_, &state);
    if (asked != ncclSuccess && asked != ncclInProgress) return asked;
    if (state != ncclInProgress) return state;
    auto const now = Clock::now();
    if (now >= deadline) return ncclInProgress;
    if (!lingers && is_stopped()) {
      lingers = true;
      deadline = std::min(deadline, now + kLinger);
    }
    if (now - began < kSpin) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, kMostNap);
  }
}

void NcclCommunicator::settle_within(Timeout limit, ncclResult_t result, char const* call) {
  check(nccl(), result, call, handle_);
  if (result != ncclInProgress) return;
  auto const deadline = Clock::now() + limit;
  result = poll(deadline);
  if (result == ncclInProgress && Clock::now() < deadline) {
    throw Error(ErrorCode::aborted, fmt::format("{}: the communicator was stopped", call));
  }
  if (result == ncclInProgress) {
    throw Error(ErrorCode::timeout,
                fmt::format("{}: NCCL is not through after {} ms; a rank did not come, or the ranks "
                            "cannot reach one another (NCCL_DEBUG=INFO says more)",
                            call, limit.count()));
  }
  check(nccl(), result, call, handle_);
}

void NcclCommunicator::settle_late(ncclResult_t result, char const* call, std::shared_ptr<void> written) {
  settle_late_within(timeout_, result, call, std::move(written));
}

void NcclCommunicator::settle_late_for_others(ncclResult_t result, char const* call, std::shared_ptr<void> written) {
  settle_late_within(most(), result, call, std::move(written));
}

void NcclCommunicator::settle_late_within(Timeout limit, ncclResult_t result, char const* call,
                                          std::shared_ptr<void> written) {
  check(nccl(), result, call, handle_);
  try {
    settle_within(limit, ncclInProgress, call);
  } catch (Error const&) {
    if (written) written_.push_back(std::move(written));
    throw;
  }
}

// Aborting a communicator also ends the making of its child.
template <typename Begin>
std::shared_ptr<NcclCommunicator> NcclCommunicator::make_child(char const* call, Timeout limit, Begin const& begin) {
  std::shared_ptr<NcclCommunicator> child(new NcclCommunicator(libraries_, timeout_));
  bool begun = false;
  try {
    Use const use(*this);
    check(nccl(), begin(use.handle(), &child->handle_), call, handle_);
    begun = true;
    settle_within(limit, ncclInProgress, call);
  } catch (Error const&) {
    if (begun) {
      child->stopped_.store(true);  // there is nothing to finalize
      unfinished_ = std::move(child);
      abort_briefly();
    }
    throw;
  }
  if (child->handle_ == nullptr) return nullptr;
  try {
    child->settle_within(limit, ncclInProgress, call);
  } catch (Error const&) {
    child->abort_briefly();
    throw;
  }
  return child;
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::succeed(std::shared_ptr<NcclCommunicator> const& parent,
                                                            std::span<int const> excluded, Bootstrap& bootstrap) {
  Outcome mine;
  std::shared_ptr<NcclCommunicator> made;
  auto const began = Clock::now();
  try {
    parent->require_fit(!excluded.empty());  // else the other ranks would wait inside NCCL for a rank that cannot
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  auto failure = first_failure(bootstrap, mine);
  if (!failure) {
    try {
      // The other ranks wait for this one's word. What NCCL cannot make from a broken communicator within this limit is
      // made from scratch.
      auto const limit = std::min<Timeout>(parent->timeout_ / 2, kMostForChild);
      made = excluded.empty() ? parent->split(0, bootstrap.rank(), limit) : parent->shrink(excluded, limit);
      if (!made) throw Error(ErrorCode::system, "NCCL gave no communicator");
    } catch (Error const& error) {
      mine = Outcome::of(error);
      parent->abort_briefly();  // other ranks may wait inside NCCL for this one; its closed sockets end their wait
    }
    failure = first_failure(bootstrap, mine);
  }
  if (!failure) return made;
  if (bootstrap.rank() == 0) {
    auto const took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
    log(LogLevel::info, fmt::format("NCCL starts anew after {} ms: {}", took.count(), failure->what()));
  }
  if (made) made->stop();  // there is nothing to finalize with the others
  return create(parent->libraries_, bootstrap, parent->timeout_);
}

bool NcclCommunicator::is_quiet() {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  if (!is_stopped()) return true;
  Use const use(*this);
  return poll(Clock::now() + kPatience) != ncclInProgress;
}

void NcclCommunicator::require_fit(bool shrinks) {
  if (aborted_) throw Error(ErrorCode::aborted, "NCCL's communicator was aborted");
  if (!is_quiet()) {
    if (shrinks) return;
    throw Error(ErrorCode::timeout, "ncclCommSplit: what was revoked has not come to rest; its streams are stuck");
  }
  auto const state = async_error();  // after the loss of a rank, the error stays even when revoked
  if (state == ncclSuccess) return;
  throw Error(ErrorCode::system,
              fmt::format("NCCL's communicator is not usable any more: {}", nccl().get_error_string(state)));
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::split(int color, int key, Timeout limit) {
  cuda::DeviceGuard const guard(libraries_.device, *libraries_.cuda);
  auto config = communicator_config();
  return make_child("ncclCommSplit", limit, [&](ncclComm_t handle, ncclComm_t* made) {
    return nccl().comm_split(handle, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, made, &config);
  });
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::shrink(std::span<int const> excluded, Timeout limit) {
  auto const flags = is_stopped() && is_quiet() ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT;
  cuda::DeviceGuard const guard(libraries_.device, *libraries_.cuda);
  auto config = communicator_config();
  std::vector<int> ranks(excluded.begin(), excluded.end());
  stopped_.store(true, std::memory_order_release);
  return make_child("ncclCommShrink", limit, [&](ncclComm_t handle, ncclComm_t* made) {
    return nccl().comm_shrink(handle, ranks.data(), static_cast<int>(ranks.size()), made, &config, flags);
  });
}

ncclResult_t NcclCommunicator::async_error() noexcept {
  std::unique_lock const turn(turn_, std::try_to_lock);
  ncclResult_t state = ncclSuccess;
  if (!turn || aborted_.load() || handle_ == nullptr) return state;
  auto const asked = nccl().comm_get_async_error(handle_, &state);
  return asked != ncclSuccess ? asked : state;
}

std::unique_lock<std::mutex> NcclCommunicator::take_turn(std::chrono::milliseconds patience) noexcept {
  std::unique_lock turn(turn_, std::try_to_lock);
  for (auto const deadline = Clock::now() + patience; !turn && Clock::now() < deadline;) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    static_cast<void>(turn.try_lock());
  }
  return turn;
}

// A thread that polls inside NCCL comes out when it sees that the communicator is stopped; one that is stuck there
// comes out because of the revocation.
void NcclCommunicator::stop() noexcept {
  constexpr auto kPatience = std::chrono::milliseconds(100);
  std::scoped_lock const lock(stopping_);  // a second caller waits here, then finds it stopped
  if (handle_ == nullptr || stopped_.exchange(true)) return;
  if (nccl().comm_revoke != nullptr) {
    auto const turn = take_turn(kPatience);
    if (aborted_.load()) return;
    auto const result = nccl().comm_revoke(handle_, NCCL_REVOKE_DEFAULT);
    if (result == ncclSuccess || result == ncclInProgress) return;
    log(LogLevel::warn, fmt::format("ncclCommRevoke: {}; aborted instead", nccl().get_error_string(result)));
  }
  begin_abort();
}

// A thread inside NCCL comes out soon: it can only be waiting for the GPU, which the abort sets free.
void NcclCommunicator::begin_abort() noexcept {
  constexpr auto kPatience = std::chrono::milliseconds(1000);
  stopped_.store(true);
  if (aborted_.exchange(true)) return;
  abort_deadline_.store(Clock::now() + timeout_);
  static_cast<void>(take_turn(kPatience));
  // NCCL may write to this object and to the unfinished child while the abort runs, so the lambda keeps both alive.
  auto const end = [self = weak_from_this().lock(), library = libraries_.nccl, handle = handle_,
                    child = std::exchange(unfinished_, nullptr), ended = abort_ended_] {
    auto const abort = [&](ncclComm_t what) {
      auto const result = library->functions.comm_abort(what);
      if (result != ncclSuccess && result != ncclInProgress)
        log(LogLevel::warn, fmt::format("ncclCommAbort: {}", library->functions.get_error_string(result)));
    };
    abort(handle);
    if (child && child->handle_ != nullptr) abort(std::exchange(child->handle_, nullptr));
    ended->store(true, std::memory_order_release);
  };
  try {
    // In a thread of its own, because ncclCommAbort waits for the GPU, which may be stuck for good.
    std::thread([end] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);
      end();
    }).detach();
  } catch (std::system_error const&) {
    end();
  }
}

bool NcclCommunicator::abort(std::function<bool()> const& enough) noexcept {
  begin_abort();
  auto const ended = [&] { return abort_ended_->load(std::memory_order_acquire); };
  while (!ended() && Clock::now() < abort_deadline_.load() && !(enough && enough()))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return ended();
}

void NcclCommunicator::abort_briefly() noexcept {
  auto const until = Clock::now() + std::min<Timeout>(timeout_ / 8, kMostForAbort);
  static_cast<void>(abort([until] { return Clock::now() >= until; }));
}

}  // namespace weft::nccl
