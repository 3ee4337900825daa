#pragma once

#include <exception>

namespace weft {

/// Base of classes that a failure puts out of use for good, as other ranks may have got further, or less far, than this
/// one. Not thread-safe.
class FailsOnce {
 protected:
  FailsOnce() = default;
  virtual ~FailsOnce() = default;

  [[nodiscard]] bool has_failed() const noexcept { return failure_ != nullptr; }
  /// Rethrows the failure that put the object out of use, if there was one.
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Runs `action`. What it throws puts the object out of use (see final_failure()).
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
  /// What to throw for `caught`, now and ever after; null where the object stays usable.
  [[nodiscard]] virtual std::exception_ptr final_failure(std::exception_ptr caught) { return caught; }

  std::exception_ptr failure_;
};

}  // namespace weft
