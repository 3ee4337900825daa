#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collectives/call.hpp"
#include "collectives/staged/plan.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/cuda_work.hpp"
#include "weft/error.hpp"

namespace weft::staged {

/// How GPUs exchange data without host memory: usually the GPUs of one host, which then need host memory only for data
/// of other hosts. The staged back end uses it where there is one.
class Inside {
 public:
  virtual ~Inside() = default;

  /// The plan of a call, or null if all of it is to go through host memory. The same kind of plan on all ranks.
  [[nodiscard]] virtual std::unique_ptr<Plan> plan(Call const& call) = 0;
  /// Enqueues a plan's calls as one group. Only from the thread that makes calls. @throws Error
  virtual void issue(std::span<Call const> calls, cuda::CudaStream& on) = 0;

  // Any thread.
  /// Tells the ranks that take part about a failure. Comes before stop(), which also ends the other ranks' work, with
  /// incomplete results.
  virtual void tell(ErrorCode code, std::string const& reason) noexcept = 0;
  /// The failure that any of these ranks has told; may outlive this object. Empty if they share no memory.
  [[nodiscard]] virtual cuda::SharedFailure::Elsewhere told() const = 0;
  /// The error that the library reports.
  [[nodiscard]] virtual std::optional<Error> failure() noexcept = 0;
  /// Ends what the plans do on the host, on all ranks that take part.
  virtual void fail(ErrorCode code, std::string const& reason) noexcept = 0;
  /// Ends what is under way on this GPU; its results are then worthless. Never waits long.
  virtual void stop() noexcept = 0;
  /// The last resort if stop() does not end it. Waits for the end, but no longer than until `enough()` or the time
  /// limit.
  virtual void abort(std::function<bool()> const& enough) noexcept = 0;
};

}  // namespace weft::staged
