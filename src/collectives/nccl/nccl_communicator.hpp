#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collectives/nccl/nccl_library.hpp"
#include "runtime/cuda/cuda_functions.hpp"
#include "weft/bootstrap.hpp"

namespace weft::nccl {

/// The function tables that calls go through, and the GPU they use.
struct Libraries {
  cuda::CudaFunctions const* cuda;
  std::shared_ptr<NcclLibrary const> nccl;
  int device = 0;
};

/// A non-blocking ncclComm_t. Only one thread at a time may call NCCL with it, which a Use ensures; any thread may call
/// stop(), abort() and async_error() at any time.
///
/// NCCL's calls return at once and NCCL goes on by itself; a caller that needs the end polls for it, up to a deadline.
/// stop() ends what is under way on the GPU: by ncclCommRevoke, after which other communicators can still be made from
/// this one, or by ncclCommAbort where the library has no ncclCommRevoke.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  using Timeout = std::chrono::milliseconds;

  /// Collective over `bootstrap`. Throws on every rank, or none: Error{timeout} when NCCL did not finish in time.
  [[nodiscard]] static std::shared_ptr<NcclCommunicator> create(Libraries libraries, Bootstrap& bootstrap,
                                                                Timeout timeout);
  /// Finalizes and destroys the communicator; aborts it if that does not end in time.
  ~NcclCommunicator();
  NcclCommunicator(NcclCommunicator const&) = delete;
  NcclCommunicator& operator=(NcclCommunicator const&) = delete;

  /// Collective over `bootstrap`, whose ranks are those of `parent` without `excluded`. `parent` has been stopped.
  /// Makes the new communicator from `parent`, or from scratch if a rank has aborted `parent` or NCCL cannot do it.
  [[nodiscard]] static std::shared_ptr<NcclCommunicator> succeed(std::shared_ptr<NcclCommunicator> const& parent,
                                                                 std::span<int const> excluded, Bootstrap& bootstrap);

  /// Collective. A communicator of the ranks that pass the same color, ranked by key; null if the color is negative.
  /// Also works after a revocation.
  [[nodiscard]] std::shared_ptr<NcclCommunicator> split(int color, int key) { return split(color, key, timeout_); }
  /// Collective over all ranks but `excluded`, which may be gone. Ends what is under way on this communicator.
  [[nodiscard]] std::shared_ptr<NcclCommunicator> shrink(std::span<int const> excluded) {
    return shrink(excluded, timeout_);
  }

  [[nodiscard]] Libraries const& libraries() const noexcept { return libraries_; }
  [[nodiscard]] NcclFunctions const& nccl() const noexcept { return libraries_.nccl->functions; }

  /// Exclusive use of the handle: while it lives, the handle stays valid and no other thread uses it. Does not nest.
  /// @throws Error{aborted} once the communicator was aborted.
  class Use {
   public:
    explicit Use(NcclCommunicator& of);
    Use(Use const&) = delete;
    Use& operator=(Use const&) = delete;
    [[nodiscard]] ncclComm_t handle() const noexcept { return of_.handle_; }

   private:
    NcclCommunicator& of_;
    std::unique_lock<std::mutex> turn_;
  };

  /// Within a Use: waits until NCCL has finished `call`, which returned `result`. ncclSuccess means it has.
  /// @throws Error{system|peer_lost|timeout|aborted}
  void settle(ncclResult_t result, char const* call) {
    if (result != ncclSuccess) [[unlikely]]
      settle_within(timeout_, result, call);
  }
  /// The same for calls that return ncclSuccess although NCCL is still working on them. NCCL writes its result into
  /// `written`, which is kept alive as long as NCCL may still do so.
  void settle_late(ncclResult_t result, char const* call, std::shared_ptr<void> written = nullptr);
  /// As settle_late(), for calls whose outcome the other ranks wait to hear: gives up early enough to tell them.
  void settle_late_for_others(ncclResult_t result, char const* call, std::shared_ptr<void> written);

  /// NCCL's asynchronous error. Also ncclSuccess while another thread is in a call: that thread sees errors itself.
  [[nodiscard]] ncclResult_t async_error() noexcept;
  /// Ends what is under way. Never waits long. Only the first call has an effect.
  void stop() noexcept;
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }
  /// When stopped: returns once the thread that stops it has told NCCL, which does not use its windows from then on.
  /// Outside a Use.
  void wait_until_told() noexcept { std::scoped_lock const lock(stopping_); }
  /// The last resort when something under way does not end: the communicator cannot be used any more. Waits until NCCL
  /// has finished aborting, until `enough()` is true, or until the time limit is over, counted from the first abort.
  /// Returns whether NCCL has finished. Any thread, outside its Use.
  bool abort(std::function<bool()> const& enough = {}) noexcept;
  /// The same when other ranks wait for this one: waits briefly, so that they get an answer in time.
  void abort_briefly() noexcept;

 private:
  NcclCommunicator(Libraries libraries, Timeout timeout) : libraries_(std::move(libraries)), timeout_(timeout) {}

  void settle_within(Timeout limit, ncclResult_t result, char const* call);
  void settle_late_within(Timeout limit, ncclResult_t result, char const* call, std::shared_ptr<void> written);
  /// Most of the time limit: the rest is for the other ranks, which wait for this one's word.
  [[nodiscard]] Timeout most() const noexcept { return timeout_ - timeout_ / 4; }
  /// Polls until NCCL has finished what it is doing, until `deadline`, or until shortly after another thread stops this
  /// communicator meanwhile.
  [[nodiscard]] ncclResult_t poll(std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] std::shared_ptr<NcclCommunicator> split(int color, int key, Timeout limit);
  [[nodiscard]] std::shared_ptr<NcclCommunicator> shrink(std::span<int const> excluded, Timeout limit);
  /// `begin(handle, made)` makes NCCL's call, which fills `made` once this communicator is no longer in progress.
  template <typename Begin>
  [[nodiscard]] std::shared_ptr<NcclCommunicator> make_child(char const* call, Timeout limit, Begin const& begin);
  /// Waits up to `patience` for the thread that is inside NCCL to come out of it.
  [[nodiscard]] std::unique_lock<std::mutex> take_turn(std::chrono::milliseconds patience) noexcept;
  void begin_abort() noexcept;
  /// Whether NCCL takes calls: a revoked communicator does so again only once it has come to rest.
  [[nodiscard]] bool is_quiet();
  /// @throws Error if no communicator can be made from this one, by ncclCommShrink if `shrinks`, else ncclCommSplit.
  void require_fit(bool shrinks);

  Libraries const libraries_;
  Timeout const timeout_;
  ncclComm_t handle_ = nullptr;  // NCCL may write to it until it has settled for the first time
  std::mutex turn_;              // held inside NCCL: only one thread may use a communicator at a time
  std::mutex stopping_;
  std::atomic<bool> stopped_{false};  // revoked or aborted
  std::atomic<bool> aborted_{false};
  std::atomic<std::chrono::steady_clock::time_point> abort_deadline_{std::chrono::steady_clock::time_point::max()};
  std::vector<std::shared_ptr<void>> written_;    // what NCCL may still write to
  std::shared_ptr<NcclCommunicator> unfinished_;  // the child that NCCL may still be making
  std::shared_ptr<std::atomic<bool>> const abort_ended_ = std::make_shared<std::atomic<bool>>(false);
};

/// The configuration of every communicator that Weft makes.
[[nodiscard]] ncclConfig_t communicator_config() noexcept;

}  // namespace weft::nccl
