#pragma once

#include <exception>

namespace weft {

/// Base of what a failure puts out of use: other ranks may have got further or less far than this one. Not thread-safe.
class FailsOnce {
 protected:
  FailsOnce() = default;
  virtual ~FailsOnce() = default;

  [[nodiscard]] bool has_failed() const noexcept { return failure_ != nullptr; }
  /// Rethrows what put it out of use.
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Runs `action`; what it throws is final.
  template <typename Action>
  void guarded(Action&& action) {
    try {
      action();
    } catch (...) {
      failure_ = final_failure(std::current_exception());
      check_usable();
      throw;
    }
  }

 private:
  /// What to throw of `caught`, now and ever after; null where all goes on.
  [[nodiscard]] virtual std::exception_ptr final_failure(std::exception_ptr caught) { return caught; }

  std::exception_ptr failure_;
};

}  // namespace weft
