#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/flight/flight_recorder.hpp"
#include "collectives/staged/inside.hpp"
#include "collectives/staged/job.hpp"
#include "collectives/staged/pinned.hpp"
#include "collectives/staged/staging.hpp"
#include "runtime/cuda/cuda_functions.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"

namespace weft::staged {

/// A thread that does the host's part of jobs, one after the other in the order of submit(). For each step it waits
/// until the GPU has copied the data, runs the host's collective, and lets the GPU go on. It does so by Signals, and
/// makes no CUDA call meanwhile.
///
/// The GPU never stays blocked: after a failure, on this rank or another, the remaining jobs are skipped, and their
/// Works fail once the GPU has finished with their buffers.
class Courier {
 public:
  struct Setup {
    cuda::CudaFunctions const* cuda;
    Communicator* host;  ///< used by the courier's thread alone, except for failures
    Staging const* staging;
    Signals const* signals;
    FlightRecorder* recorder;
    Inside* inside;  ///< may be null
    Device device;
  };

  explicit Courier(Setup const& setup);
  /// Carries out the submitted jobs first; each ends within its time limit or fails.
  ~Courier();
  Courier(Courier const&) = delete;
  Courier& operator=(Courier const&) = delete;

  /// Call it before any part of the job is enqueued on the GPU: the GPU's queue may be shorter than the job.
  void submit(std::shared_ptr<Job> job);

  // Any thread.
  /// The failure that ends all later jobs: this rank's, or that of a rank that shares Inside with it.
  [[nodiscard]] std::exception_ptr failure() const noexcept { return failure_->look(); }
  void throw_if_failed() const {
    if (auto const error = failure()) [[unlikely]]
      std::rethrow_exception(error);
  }
  /// Makes all ranks fail, unless there is a failure already.
  void fail(ErrorCode code, std::string const& message) noexcept;
  /// Waits until no job is left. Only after a failure.
  void await_idle();

 private:
  using Clock = std::chrono::steady_clock;

  void run() noexcept;
  [[nodiscard]] std::shared_ptr<Job> next();
  void carry(Job& job);
  void carry_collective(Job& job);
  void carry_messages(Job& job);
  /// Collective: compares what the ranks call. Returns the largest number of steps of any rank.
  /// @throws Error{mismatch} on all ranks.
  [[nodiscard]] std::size_t agree(Job const& job);
  /// Waits until the GPU has set `word` to `step`. @throws Error{timeout} saying that `what` is late.
  void await(Job const& job, std::uint32_t* word, std::uint32_t step, char const* what);
  /// @throws any rank's failure.
  void hear();
  /// The same, and also the failure of Inside's library. Looks at most once every kNapIdle.
  void look_around();
  /// Whether a rank has failed, so that what the GPUs did among themselves may have been cut short.
  [[nodiscard]] bool is_doubtful() noexcept;
  /// Whether the GPU has failed, so that it will never set the job's signals. Looks at most once every kNapIdle.
  [[nodiscard]] bool has_lost_gpu(Job const& job);
  void tell_lost_gpu(Job const& job) noexcept;
  /// For a job whose host part is done. @throws Error{timeout} if the GPUs do not finish the rest in time.
  void look_at_time(Job const& job);
  /// Completes the jobs that the GPU has finished.
  void retire();
  /// Completes one job that the GPU has finished.
  void conclude(Job& job) noexcept;
  void drop(Job& job) noexcept;
  /// After a failure: ends what GPUs do among themselves, and the jobs that need it.
  void end_inside() noexcept;
  [[nodiscard]] std::string explain(Job const& job, std::string const& why) const;

  Setup const setup_;
  std::shared_ptr<cuda::SharedFailure> const failure_;

  // Used by the courier's thread only.
  std::deque<std::shared_ptr<Job>> carried_;  // the host's part is done, the GPU's is not
  Clock::time_point started_;                 // when the current job was begun
  Clock::time_point seen_;                    // when look_around() last looked
  Clock::time_point asked_;                   // when has_lost_gpu() last looked
  std::atomic<bool> ended_inside_{false};

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool busy_ = false;
  bool ending_ = false;
  std::thread thread_;  // last, because it uses all of the above
};

}  // namespace weft::staged
