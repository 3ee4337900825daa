#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/staged/copies.hpp"

namespace weft::staged {

/// Where a step's bytes are in host memory: what the rank gives, and what it gets.
struct Slot {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

/// One rank's part of a collective on device memory, divided into steps. A step has five parts: what the GPUs of a host
/// do among themselves first, the copies from the device to the host, the collective there, the copies back, and what
/// the GPUs do with the result. No step reads what an earlier one wrote.
///
/// The thread that makes calls creates the plan and calls its functions, except exchange(), which the courier calls.
class Plan {
 public:
  /// `call` owns its parts.
  explicit Plan(Call call) : call_(std::move(call)) {}
  virtual ~Plan() = default;
  Plan(Plan const&) = delete;
  Plan& operator=(Plan const&) = delete;

  [[nodiscard]] Call const& call() const noexcept { return call_; }
  /// This rank's number of steps, at least 1. If only some ranks know the parts' sizes, the numbers differ; ranks with
  /// fewer steps then take part in the remaining ones without data.
  [[nodiscard]] virtual std::size_t steps() const noexcept = 0;

  /// The copies from the device to the slot, before exchange().
  [[nodiscard]] virtual Copies copies_out(std::size_t step, Slot const& slot) const = 0;
  /// The copies back, after exchange().
  [[nodiscard]] virtual Copies copies_in(std::size_t step, Slot const& slot) const = 0;
  /// The collective on the host. Returns when it has finished. @throws Error
  virtual void exchange(std::size_t step, Slot const& slot) const = 0;

  /// Whether before() and after() may have calls.
  [[nodiscard]] virtual bool goes_inside() const noexcept { return false; }
  /// Calls among the ranks of Inside, in Inside's rank numbers, before copies_out().
  [[nodiscard]] virtual std::vector<Call> before(std::size_t /*step*/) const { return {}; }
  /// The same after copies_in().
  [[nodiscard]] virtual std::vector<Call> after(std::size_t /*step*/) const { return {}; }

  /// For people: "through pinned host memory"
  [[nodiscard]] virtual std::string way() const = 0;

 private:
  Call const call_;
};

}  // namespace weft::staged
