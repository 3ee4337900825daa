#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collectives/call.hpp"
#include "collectives/staged/plan.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "weft/error.hpp"

namespace weft::staged {

/// GPUs that exchange data without the host: those of a host, which so need its memory only for what others have.
class Inside {
 public:
  virtual ~Inside() = default;

  /// In which steps the call goes; null where all of it is to go through host memory. The same kind on all ranks.
  [[nodiscard]] virtual std::unique_ptr<Plan> plan(Call const& call) = 0;
  /// Enqueues a plan's calls as one. The thread that makes calls. @throws Error
  virtual void issue(std::span<Call const> calls, cuda::CudaStream& on) = 0;

  // Any thread.
  /// What its library says went wrong.
  [[nodiscard]] virtual std::optional<Error> failure() noexcept = 0;
  /// Ends what its plans do on the host, on all ranks that take part.
  virtual void fail(ErrorCode code, std::string const& reason) noexcept = 0;
  /// Ends what is under way on this GPU, whose results mean nothing then. Never waits long.
  virtual void stop() noexcept = 0;
  /// The last resort where that does not end it. Waits for it, but no longer than until `enough()` or the time limit.
  virtual void abort(std::function<bool()> const& enough) noexcept = 0;
};

}  // namespace weft::staged
