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

/// A thread that carries out the host's part of jobs, one after the other in the order of submit(): waits until the GPU
/// has copied a step, runs the host's collective, and lets the GPU go on, all by Signals, so that it asks CUDA nothing
/// meanwhile.
///
/// Whatever happens the GPU gets to go on: after a failure, here or on another rank, jobs are passed over, and their
/// Works fail once the GPU is through with their buffers.
class Courier {
 public:
  struct Setup {
    cuda::CudaFunctions const* cuda;
    Communicator* host;  ///< of this thread alone, but for failures
    Staging const* staging;
    Signals const* signals;
    FlightRecorder* recorder;
    Inside* inside;  ///< may be null
    Device device;
  };

  explicit Courier(Setup const& setup);
  /// Carries what was submitted, which ends in time or fails.
  ~Courier();
  Courier(Courier const&) = delete;
  Courier& operator=(Courier const&) = delete;

  /// Before the GPU is given anything of it: the GPU's queue may be shorter than the job.
  void submit(std::shared_ptr<Job> job);

  // Any thread.
  /// The failure that ends all later jobs.
  [[nodiscard]] std::exception_ptr failure() const noexcept { return failure_->get(); }
  void throw_if_failed() const {
    if (failure_->is_set()) [[unlikely]]
      std::rethrow_exception(failure_->get());
  }
  /// Decides a failure for all ranks, unless one is known.
  void fail(ErrorCode code, std::string const& message) noexcept;
  /// Waits until no job is left. After a failure only.
  void await_idle();

 private:
  using Clock = std::chrono::steady_clock;

  void run() noexcept;
  [[nodiscard]] std::shared_ptr<Job> next();
  void carry(Job& job);
  void carry_collective(Job& job);
  void carry_messages(Job& job);
  /// All ranks tell what they call. How many steps the one with most has. @throws Error{mismatch} on all.
  [[nodiscard]] std::size_t agree(Job const& job);
  /// Waits until the GPU has set `word` to `step`. @throws Error{timeout} saying that `what` is late.
  void await(Job const& job, std::uint32_t* word, std::uint32_t step, char const* what);
  /// Another rank's failure, or of the library inside. Not more often than is worth it.
  void look_around();
  /// Of a job that was exchanged, whether what the GPUs then do is through in time.
  void look_at_time(Job const& job);
  /// Completes what the GPU is through with.
  void retire();
  void drop(Job& job) noexcept;
  /// After a failure: ends what GPUs do among themselves, and the jobs that need it.
  void end_inside() noexcept;
  [[nodiscard]] std::string explain(Job const& job, std::string const& why) const;

  Setup const setup_;
  std::shared_ptr<cuda::SharedFailure> const failure_ = std::make_shared<cuda::SharedFailure>();

  // The thread's own.
  std::deque<std::shared_ptr<Job>> carried_;  // not landed yet
  Clock::time_point started_;                 // when the job that is carried became it
  Clock::time_point seen_;                    // when it looked around
  std::atomic<bool> ended_inside_{false};

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool busy_ = false;
  bool ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace weft::staged
