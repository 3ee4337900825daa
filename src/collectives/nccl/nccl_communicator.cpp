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

NcclCommunicator::Use::Use(NcclCommunicator& of) : of_(of) {
  of_.users_.fetch_add(1);
  if (!of_.aborted_.load()) return;
  of_.users_.fetch_sub(1);
  throw Error(ErrorCode::aborted, "NCCL's communicator was aborted");
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
    if (made && made->handle_ != nullptr) static_cast<void>(made->abort());  // what is being made cannot be revoked
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
    if (result == ncclSuccess || result == ncclInProgress) result = poll(handle_, deadline, false);
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

ncclResult_t NcclCommunicator::poll(ncclComm_t handle, Clock::time_point deadline, bool until_stopped) {
  constexpr auto kMostNap = std::chrono::microseconds(1000);
  auto nap = std::chrono::microseconds(10);
  while (true) {
    ncclResult_t state = ncclSuccess;
    auto const asked = nccl().comm_get_async_error(handle, &state);
    if (asked != ncclSuccess && asked != ncclInProgress) return asked;
    if (state != ncclInProgress) return state;
    if (Clock::now() >= deadline || (until_stopped && is_stopped())) return ncclInProgress;
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, kMostNap);
  }
}

void NcclCommunicator::settle_within(Timeout limit, ncclResult_t result, char const* call) {
  check(nccl(), result, call, handle_);
  if (result != ncclInProgress) return;
  result = poll(handle_, Clock::now() + limit, true);
  if (result == ncclInProgress && is_stopped()) {
    throw Error(ErrorCode::aborted, fmt::format("{}: the communicator was stopped", call));
  }
  if (result == ncclInProgress) {
    throw Error(ErrorCode::timeout,
                fmt::format("{}: NCCL is not through after {} ms; a rank did not come, or the ranks "
                            "cannot reach one another (NCCL_DEBUG=INFO says more)",
                            call, timeout_.count()));
  }
  check(nccl(), result, call, handle_);
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::adopt(ncclComm_t made, ncclResult_t result, char const* call,
                                                          Timeout limit) {
  check(nccl(), result, call, handle_);
  // The old one tells when it is through with its part.
  if (result == ncclInProgress) {
    auto const parent = poll(handle_, Clock::now() + limit, false);
    check(nccl(), parent == ncclInProgress ? ncclSystemError : parent, call, handle_);
  }
  if (made == nullptr) return nullptr;
  std::shared_ptr<NcclCommunicator> child(new NcclCommunicator(libraries_, timeout_));
  child->handle_ = made;
  try {
    child->settle_within(limit, ncclInProgress, call);
  } catch (Error const&) {
    static_cast<void>(child->abort());  // what is being made cannot be revoked
    throw;
  }
  return child;
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::succeed(std::shared_ptr<NcclCommunicator> const& parent,
                                                            std::span<int const> excluded, Bootstrap& bootstrap) {
  Outcome mine;
  std::shared_ptr<NcclCommunicator> made;
  if (parent->aborted_) mine = Outcome::of(Error(ErrorCode::aborted, "NCCL's communicator was aborted"));
  auto failure = first_failure(bootstrap, mine);
  if (!failure) {
    try {
      auto const limit = parent->timeout_ / 2;  // the others wait for this rank's word
      made = excluded.empty() ? parent->split(0, bootstrap.rank(), limit) : parent->shrink(excluded, limit);
    } catch (Error const& error) {
      mine = Outcome::of(error);
    }
    failure = first_failure(bootstrap, mine);
  }
  if (!failure) return made;
  if (bootstrap.rank() == 0) log(LogLevel::info, fmt::format("NCCL starts anew: {}", failure->what()));
  if (made) made->stop();  // there is nothing to finalize with the others
  return create(parent->libraries_, bootstrap, parent->timeout_);
}

bool NcclCommunicator::is_quiet() {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  return !is_stopped() || poll(handle_, Clock::now() + kPatience, false) != ncclInProgress;
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::split(int color, int key, Timeout limit) {
  Use const use(*this);
  if (!is_quiet()) {
    throw Error(ErrorCode::timeout, "ncclCommSplit: what was revoked has not come to rest; its streams are stuck");
  }
  cuda::DeviceGuard const guard(libraries_.device, *libraries_.cuda);
  auto config = communicator_config();
  ncclComm_t made = nullptr;
  auto const result = nccl().comm_split(handle_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &made, &config);
  return adopt(made, result, "ncclCommSplit", limit);
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::shrink(std::span<int const> excluded, Timeout limit) {
  Use const use(*this);
  cuda::DeviceGuard const guard(libraries_.device, *libraries_.cuda);
  auto config = communicator_config();
  std::vector<int> ranks(excluded.begin(), excluded.end());
  ncclComm_t made = nullptr;
  auto const flags = is_stopped() && is_quiet() ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT;
  auto const result = nccl().comm_shrink(handle_, ranks.data(), static_cast<int>(ranks.size()), &made, &config, flags);
  stopped_.store(true, std::memory_order_release);
  return adopt(made, result, "ncclCommShrink", limit);
}

ncclResult_t NcclCommunicator::async_error() noexcept {
  users_.fetch_add(1);
  ncclResult_t state = ncclSuccess;
  if (!aborted_.load() && handle_ != nullptr) {
    auto const asked = nccl().comm_get_async_error(handle_, &state);
    if (asked != ncclSuccess) state = asked;
  }
  users_.fetch_sub(1, std::memory_order_release);
  return state;
}

void NcclCommunicator::stop() noexcept {
  std::scoped_lock const lock(stopping_);  // who comes second finds it stopped
  if (handle_ == nullptr || stopped_.exchange(true)) return;
  if (nccl().comm_revoke != nullptr) {
    auto const result = nccl().comm_revoke(handle_, NCCL_REVOKE_DEFAULT);
    if (result == ncclSuccess || result == ncclInProgress) return;
    log(LogLevel::warn, fmt::format("ncclCommRevoke: {}; aborted instead", nccl().get_error_string(result)));
  }
  static_cast<void>(abort());
}

// Who is inside of NCCL comes out soon: nothing there waits, but for the GPU, which the abort sets free.
void NcclCommunicator::begin_abort() noexcept {
  constexpr int kPatience = 1000;  // ms
  if (aborted_.exchange(true)) return;
  for (int waited = 0; users_.load(std::memory_order_acquire) > 0 && waited < kPatience; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  auto const end = [library = libraries_.nccl, handle = handle_, ended = abort_ended_] {
    auto const result = library->functions.comm_abort(handle);
    if (result != ncclSuccess && result != ncclInProgress)
      log(LogLevel::warn, fmt::format("ncclCommAbort: {}", library->functions.get_error_string(result)));
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
  for (auto const deadline = Clock::now() + timeout_; !ended() && Clock::now() < deadline && !(enough && enough());)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return ended();
}

}  // namespace weft::nccl
