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

/// Rank 0's, on every rank.
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
    made->settle_within(timeout - timeout / 4, result,
                        "ncclCommInitRankConfig");  // the others wait for this rank's word
  } catch (Error const& error) {
    outcome = Outcome::of(error);
    if (made && made->handle_ != nullptr) made->abort_briefly();  // what is being made cannot be revoked
  }
  agree(bootstrap, outcome);
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_ == nullptr || aborted_) return;
  try {
    cuda::DeviceGuard const guard(libraries_.device, *libraries_.cuda);
    auto const deadline = Clock::now() + timeout_;
    // What was revoked may not be finalized: nothing is under way.
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

// NCCL launches the calls of several ranks from a thread of its own, in tens of microseconds once connections are made:
// a nap would take longer.
ncclResult_t NcclCommunicator::poll(Clock::time_point deadline) {
  constexpr auto kSpin = std::chrono::microseconds(500);
  constexpr auto kMostNap = std::chrono::microseconds(1000);
  // What was called just before the stop may be launched yet, on a stream whose owner learns of the failure now and
  // frees it. Less than stop() waits for whoever is in here.
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
  check(nccl(), result, call, handle_);
  try {
    settle_within(timeout_, ncclInProgress, call);
  } catch (Error const&) {
    if (written) written_.push_back(std::move(written));
    throw;
  }
}

// What is being made ends with the abort of the one that it is made from.
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
    parent->require_fit(!excluded.empty());  // a rank that cannot would be waited for by the others inside of NCCL
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  auto failure = first_failure(bootstrap, mine);
  if (!failure) {
    try {
      // The others wait for this rank's word; and what NCCL cannot make of a broken communicator by then is made anew.
      auto const limit = std::min<Timeout>(parent->timeout_ / 2, kMostForChild);
      made = excluded.empty() ? parent->split(0, bootstrap.rank(), limit) : parent->shrink(excluded, limit);
      if (!made) throw Error(ErrorCode::system, "NCCL gave no communicator");
    } catch (Error const& error) {
      mine = Outcome::of(error);
      parent->abort_briefly();  // the others may wait for this rank inside of NCCL, which hears of closed sockets
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
  auto const state = async_error();  // which outlives a revocation where a rank was lost
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

// Who is inside of NCCL and polls comes out when it sees that it is stopped; who is stuck there comes out by this.
void NcclCommunicator::stop() noexcept {
  constexpr auto kPatience = std::chrono::milliseconds(100);
  std::scoped_lock const lock(stopping_);  // who comes second finds it stopped
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

// Who is inside of NCCL comes out soon: nothing there waits, but for the GPU, which the abort sets free.
void NcclCommunicator::begin_abort() noexcept {
  constexpr auto kPatience = std::chrono::milliseconds(1000);
  stopped_.store(true);
  if (aborted_.exchange(true)) return;
  abort_deadline_.store(Clock::now() + timeout_);
  static_cast<void>(take_turn(kPatience));
  // NCCL may write to this one, and to what it has not finished, as long as that runs.
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
    // It waits for the GPU, which may be stuck for good.
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
