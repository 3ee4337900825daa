#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/flight/flight_recorder.hpp"
#include "collectives/nccl/control.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "collectives/peer_state.hpp"
#include "core/cache_line.hpp"
#include "runtime/cuda/cuda_work.hpp"
#include "weft/error.hpp"

namespace weft::nccl {

/// A thread that watches what was enqueued on the GPU, so that no caller has to wait: which calls have finished,
/// whether all ranks make the same calls, and whether a rank is late, gone or in trouble. When it finds something
/// wrong, the communicator ends: all pending Works fail, on all ranks, and NCCL stops what is under way.
///
/// Calls finish in the order in which they were made. Only the thread that makes calls uses add(), which neither locks
/// nor waits unless kMostPending calls are pending; any thread may use fail() and failure().
class Watch {
 public:
  static constexpr std::size_t kMostPending = 4096;

  struct Setup {
    cuda::CudaFunctions const* cuda;
    std::shared_ptr<NcclCommunicator> communicator;
    Control* control;
    FlightRecorder* recorder;
    std::function<PeerState(int rank)> peer_state;
  };

  explicit Watch(Setup setup);
  /// Waits for pending calls, each of which finishes within its time limit or fails.
  ~Watch();
  Watch(Watch const&) = delete;
  Watch& operator=(Watch const&) = delete;

  /// Watches a call that has been enqueued, or captured. Several calls may share a `work`.
  void add(Call const& call, std::shared_ptr<cuda::CudaWork> work);
  /// The same for messages that complete together. This one may lock.
  void add(Call const& transfer, std::span<Message const> messages, std::shared_ptr<cuda::CudaWork> work);

  /// After a failure: waits until the calls that were pending then have been dropped.
  void await_dropped() const;

  /// @throws any rank's failure.
  void throw_if_failed() {
    if (failure_->is_set() || setup_.control->has_failed()) [[unlikely]]
      throw_failure();
  }
  /// The failure that all Works share.
  [[nodiscard]] std::shared_ptr<cuda::SharedFailure> const& failure() const noexcept { return failure_; }
  /// Records a failure for all ranks, unless there is one already.
  void fail(ErrorCode code, std::string const& message) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  /// What reports need to know about a call. One cache line, because two threads pass it back and forth.
  struct alignas(kLine) Pending {
    Contract contract;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{};
    std::shared_ptr<cuda::CudaWork> work;

    [[nodiscard]] bool captured() const noexcept { return work->completion.is_captured(); }
  };
  static_assert(sizeof(Pending) == kLine);

  /// The flight recorder's record of messages that complete together.
  struct Transfer {
    Transfer(FlightRecorder& recorder, std::span<Message const> of)
        : messages(of.begin(), of.end()), record(recorder.begin(messages, true)) {}

    std::vector<Message> const messages;
    RecordedTransfer record;
  };

  [[nodiscard]] Call call_of(Pending const& pending) const;
  void run() noexcept;
  /// Looks at everything once. True while calls are pending.
  bool look();
  /// Removes the calls that the GPU has finished.
  void retire();
  void retire_first();
  /// Notes that the oldest pending call has begun.
  void begin_first();
  /// Records in the flight recorder that the oldest pending call has finished, or why it failed.
  void record_first(Pending const& first, std::exception const* error);
  /// Whether the GPU has finished the call. @throws Error if the GPU has failed.
  [[nodiscard]] bool is_reached(Pending const& pending) const;
  /// Of the pending calls [taken, added): one past the last that the GPU has finished.
  [[nodiscard]] std::uint64_t end_of_reached(std::uint64_t taken, std::uint64_t added) const;
  void compare_contracts();
  void compare_contract(int peer, std::uint64_t sequence);
  /// Checks that what `giver` gives `taker` is what `taker` expects. This rank is one of the two.
  void compare_pieces(int giver, int taker, std::uint64_t& compared);
  void look_at_peers(Pending const& first);
  void look_at_time(Pending const& first);
  void look_at_nccl(Call const& call);
  /// After NCCL has lost a rank: whether it may still turn out which one, so that the report should wait.
  [[nodiscard]] bool may_be_named(ncclResult_t state);
  /// Takes over a failure that another rank has recorded.
  void hear();
  void end_with(Error const& error);
  [[noreturn]] void throw_failure();
  /// After a failure: stops NCCL, and fails each pending call once the GPU has finished with it, because whether its
  /// result is right cannot be known any more.
  void drop_all();
  [[nodiscard]] static bool has_succeeded(Pending const& pending) noexcept;
  /// Waits until the GPU no longer uses a call's buffers, because the call has finished or NCCL was aborted. False if
  /// neither happens in time.
  [[nodiscard]] bool await_release(Pending const& pending);
  /// Which rank is behind in `call`: "rank 2 did not make it (it made 5)", "…". For messages, the rank that has not
  /// made its side.
  [[nodiscard]] std::string name_late(Call const& call) const;
  [[nodiscard]] std::string name_late_peer() const;
  /// "all_reduce(4 × f32, sum), call 2 on cuda:0 (it made 1 collective call there; rank 0 waited)"; "it" is `peer`.
  [[nodiscard]] std::string where(Call const& call, int peer) const;

  Setup const setup_;
  std::shared_ptr<cuda::SharedFailure> const failure_;
  std::unique_ptr<Pending[]> const ring_ = std::make_unique<Pending[]>(kMostPending);
  std::atomic<std::uint64_t> added_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<bool> dropped_{false};   // after a failure: the calls pending then have been dropped
  std::atomic<bool> captures_{false};  // a call is part of a graph, which may run at any time

  // Used by the watch's thread only.
  struct Compared {
    std::uint64_t calls = 0;     ///< contracts have been compared up to this call
    std::uint64_t given = 0;     ///< pieces for that rank have been compared up to this one
    std::uint64_t expected = 0;  ///< and pieces from it up to this one
  };
  std::vector<Compared> compared_;  // by rank
  std::uint64_t first_ = ~std::uint64_t{0};
  Clock::time_point first_since_;  // since when the oldest pending call has been the oldest
  Clock::time_point peers_seen_;
  Clock::time_point stopped_at_;  // after a failure
  Clock::time_point lost_at_;     // when NCCL first said that a rank is gone

  std::mutex transfers_mutex_;
  std::deque<Transfer> transfers_;  // of pending messages, in order

  std::mutex mutex_;  // guards ending_
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;  // last, because it uses all of the above
};

}  // namespace weft::nccl
