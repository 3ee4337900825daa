#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
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

/// A thread beside the GPU, which looks at what was enqueued there so that nobody has to wait: which calls are through,
/// whether all ranks make the same ones, whether one is late, gone or in trouble. What it finds wrong ends the
/// communicator: all pending Works fail, on all ranks, and NCCL stops what is under way.
///
/// Calls are through in the order in which they were made. add() is for the thread that makes calls, and neither locks
/// nor waits unless kMostPending calls are pending; fail() and failure() are for any.
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
  /// Waits for what is pending, which ends in time or fails.
  ~Watch();
  Watch(Watch const&) = delete;
  Watch& operator=(Watch const&) = delete;

  /// A call that is enqueued, or captured. Several may share a `work`.
  void add(Call const& call, std::shared_ptr<cuda::CudaWork> work);

  /// Waits until what was pending when there was a failure has been dropped.
  void await_dropped() const;

  /// Any rank's failure.
  void throw_if_failed() {
    if (failure_->is_set() || setup_.control->has_failed()) [[unlikely]]
      throw_failure();
  }
  /// What Works are to share.
  [[nodiscard]] std::shared_ptr<cuda::SharedFailure> const& failure() const noexcept { return failure_; }
  /// Decides a failure for all ranks, unless one is known.
  void fail(ErrorCode code, std::string const& message) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  /// What reports need of a call; a cache line, which two threads hand to and fro.
  struct alignas(kLine) Pending {
    Contract contract;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{};
    std::shared_ptr<cuda::CudaWork> work;

    [[nodiscard]] bool captured() const noexcept { return work->completion.is_captured(); }
  };
  static_assert(sizeof(Pending) == kLine);

  [[nodiscard]] Call call_of(Pending const& pending) const;
  void run() noexcept;
  /// One look at everything; true while calls are pending.
  bool look();
  /// Takes away what the GPU is through with.
  void retire();
  void retire_first();
  /// The oldest pending call has begun.
  void begin_first();
  /// Of pending calls [taken, added): behind the last one that the GPU is through with.
  [[nodiscard]] std::uint64_t end_of_reached(std::uint64_t taken, std::uint64_t added) const;
  void compare_contracts();
  void compare_contract(int peer, std::uint64_t sequence);
  /// What `giver` gives `taker`, one of whom this rank is, is what that one expects.
  void compare_pieces(int giver, int taker, std::uint64_t& compared);
  void look_at_peers(Pending const& first);
  void look_at_time(Pending const& first);
  void look_at_nccl(Call const& call);
  /// Whether it may still turn out who is behind it that NCCL lost a rank.
  [[nodiscard]] bool may_be_named(ncclResult_t state);
  /// Hears of a failure that another rank decided.
  void hear();
  void end_with(Error const& error);
  [[noreturn]] void throw_failure();
  /// Once there is a failure: stops NCCL, and fails what is pending when the GPU is through with it.
  void drop_all();
  /// Waits until the GPU no longer uses a call's buffers: it is through, or NCCL was aborted. False where neither comes
  /// in time.
  [[nodiscard]] bool await_release(Pending const& pending);
  /// Who is behind in `call`: "rank 2 did not make it (it made 5)", "…"; of messages, who has not made the other side.
  [[nodiscard]] std::string name_late(Call const& call) const;
  [[nodiscard]] std::string name_late_peer() const;
  /// "all_reduce(4 × f32, sum), call 2 on cuda:0 (it made 1 of the calls there; rank 0 waited)", `it` being `peer`.
  [[nodiscard]] std::string where(Call const& call, int peer) const;

  Setup const setup_;
  std::shared_ptr<cuda::SharedFailure> const failure_ = std::make_shared<cuda::SharedFailure>();
  std::unique_ptr<Pending[]> const ring_ = std::make_unique<Pending[]>(kMostPending);
  std::atomic<std::uint64_t> added_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<bool> dropped_{false};   // of a failure: what was pending when it was found
  std::atomic<bool> captures_{false};  // some call is part of a graph, which may run at any time

  // The thread's own.
  struct Compared {
    std::uint64_t calls = 0;     ///< up to which one contracts were equal
    std::uint64_t given = 0;     ///< up to which piece for that rank
    std::uint64_t expected = 0;  ///< and from it
  };
  std::vector<Compared> compared_;  // by rank
  std::uint64_t first_ = ~std::uint64_t{0};
  Clock::time_point first_since_;  // when the oldest pending call became it
  Clock::time_point peers_seen_;
  Clock::time_point stopped_at_;  // after a failure
  Clock::time_point lost_at_;     // when NCCL first said that a rank is gone

  std::mutex mutex_;  // of ending_
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace weft::nccl
