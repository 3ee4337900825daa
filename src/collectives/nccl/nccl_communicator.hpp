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

/// What calls go through: the tables, and the GPU.
struct Libraries {
  cuda::CudaFunctions const* cuda;
  std::shared_ptr<NcclLibrary const> nccl;
  int device = 0;
};

/// A non-blocking ncclComm_t. One thread at a time calls, which a Use sees to; stop(), abort() and async_error() are
/// for any, at any time.
///
/// NCCL answers at once and goes on by itself; whoever needs the end polls, up to a deadline. stop() ends what is under
/// way on the GPU: by ncclCommRevoke, which leaves a communicator that others can be made from, or where the library
/// has none by ncclCommAbort.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  using Timeout = std::chrono::milliseconds;

  /// Collective over `bootstrap`. Throws on every rank, or none: Error{timeout} when NCCL did not come to an end.
  [[nodiscard]] static std::shared_ptr<NcclCommunicator> create(Libraries libraries, Bootstrap& bootstrap,
                                                                Timeout timeout);
  /// Finalizes and destroys; aborts what does not end in time.
  ~NcclCommunicator();
  NcclCommunicator(NcclCommunicator const&) = delete;
  NcclCommunicator& operator=(NcclCommunicator const&) = delete;

  /// Collective over `bootstrap`, whose ranks are those of `parent` without `excluded`, and which has been stopped: one
  /// that is made from it, or anew where a rank has aborted it, or NCCL cannot.
  [[nodiscard]] static std::shared_ptr<NcclCommunicator> succeed(std::shared_ptr<NcclCommunicator> const& parent,
                                                                 std::span<int const> excluded, Bootstrap& bootstrap);

  /// Collective: of the ranks that pass the same color, ranked by key; null where it is negative. Also of one that was
  /// revoked.
  [[nodiscard]] std::shared_ptr<NcclCommunicator> split(int color, int key) { return split(color, key, timeout_); }
  /// Collective over all ranks but `excluded`, which may be gone: what is under way ends with it.
  [[nodiscard]] std::shared_ptr<NcclCommunicator> shrink(std::span<int const> excluded) {
    return shrink(excluded, timeout_);
  }

  [[nodiscard]] Libraries const& libraries() const noexcept { return libraries_; }
  [[nodiscard]] NcclFunctions const& nccl() const noexcept { return libraries_.nccl->functions; }

  /// Use of the handle: it stays valid meanwhile, and no other thread is in it. Does not nest.
  /// @throws Error{aborted} once it was aborted.
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

  /// Within a Use: waits until NCCL is through with `call`, which gave `result`: success is through.
  /// @throws Error{system|peer_lost|timeout|aborted}
  void settle(ncclResult_t result, char const* call) {
    if (result != ncclSuccess) [[unlikely]]
      settle_within(timeout_, result, call);
  }
  /// The same of calls that say success and go on. What NCCL is to write to lies in `written`, which is kept as long as
  /// it may.
  void settle_late(ncclResult_t result, char const* call, std::shared_ptr<void> written = nullptr);

  /// Success also while another thread is in a call, which hears of errors itself.
  [[nodiscard]] ncclResult_t async_error() noexcept;
  /// Ends what is under way. Never waits long. The first time counts.
  void stop() noexcept;
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }
  /// Once it is: returns when the thread that stops it has told NCCL, which takes no part in its windows from then on.
  /// Outside of a Use.
  void wait_until_told() noexcept { std::scoped_lock const lock(stopping_); }
  /// The last resort where something under way does not end: nobody can use the communicator any more. Waits until NCCL
  /// is through with that, until `enough()`, or until the time limit, counted from the first abort, is over; whether it
  /// is. Any thread, outside of its Use.
  bool abort(std::function<bool()> const& enough = {}) noexcept;

 private:
  NcclCommunicator(Libraries libraries, Timeout timeout) : libraries_(std::move(libraries)), timeout_(timeout) {}

  void settle_within(Timeout limit, ncclResult_t result, char const* call);
  /// Polls until NCCL is through with what it does, or somebody has stopped it who had not before, and a moment is
  /// over.
  [[nodiscard]] ncclResult_t poll(std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] std::shared_ptr<NcclCommunicator> split(int color, int key, Timeout limit);
  [[nodiscard]] std::shared_ptr<NcclCommunicator> shrink(std::span<int const> excluded, Timeout limit);
  /// `begin(handle, made)` makes NCCL's call, which fills `made` once this one is no longer in progress.
  template <typename Begin>
  [[nodiscard]] std::shared_ptr<NcclCommunicator> make_child(char const* call, Timeout limit, Begin const& begin);
  /// Waits for whoever is inside of NCCL to come out, but not long.
  [[nodiscard]] std::unique_lock<std::mutex> take_turn(std::chrono::milliseconds patience) noexcept;
  void begin_abort() noexcept;
  /// Of what others wait for: gives them an answer in time.
  void abort_briefly() noexcept;
  /// What was revoked takes calls again once it has come to rest.
  [[nodiscard]] bool is_quiet();
  /// @throws Error where no communicator can be split off, or none of fewer ranks made of it.
  void require_fit(bool shrinks);

  Libraries const libraries_;
  Timeout const timeout_;
  ncclComm_t handle_ = nullptr;  // NCCL may write to it until it has settled for the first time
  std::mutex turn_;              // in NCCL, of which only one thread may be in a communicator
  std::mutex stopping_;
  std::atomic<bool> stopped_{false};  // revoked or aborted
  std::atomic<bool> aborted_{false};
  std::atomic<std::chrono::steady_clock::time_point> abort_deadline_{std::chrono::steady_clock::time_point::max()};
  std::vector<std::shared_ptr<void>> written_;    // what NCCL may still write to
  std::shared_ptr<NcclCommunicator> unfinished_;  // the child that it may still be making
  std::shared_ptr<std::atomic<bool>> const abort_ended_ = std::make_shared<std::atomic<bool>>(false);
};

/// What Weft asks of every communicator.
[[nodiscard]] ncclConfig_t communicator_config() noexcept;

}  // namespace weft::nccl
