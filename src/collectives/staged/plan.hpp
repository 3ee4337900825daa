#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/staged/copies.hpp"

namespace weft::staged {

/// Where a step's bytes are on the host: what the rank gives, and what it gets.
struct Slot {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

/// One rank's part of a collective of device memory, divided into steps: of each, what the GPUs of a host do among
/// themselves first, what goes from the device to the host, the collective there, what comes back, and what the GPUs do
/// with that. What step k writes no later one reads.
///
/// The thread that makes calls makes it and asks for all but exchange(), which is the courier's.
class Plan {
 public:
  /// `call` owns its parts.
  explicit Plan(Call call) : call_(std::move(call)) {}
  virtual ~Plan() = default;
  Plan(Plan const&) = delete;
  Plan& operator=(Plan const&) = delete;

  [[nodiscard]] Call const& call() const noexcept { return call_; }
  /// This rank's, at least 1. Where only some ranks know of parts, the ranks' differ: the others go on with empty ones.
  [[nodiscard]] virtual std::size_t steps() const noexcept = 0;

  /// From the device to the slot, before exchange().
  [[nodiscard]] virtual Copies copies_out(std::size_t step, Slot const& slot) const = 0;
  /// Back, after it.
  [[nodiscard]] virtual Copies copies_in(std::size_t step, Slot const& slot) const = 0;
  /// Collective. Returns when it is through. @throws Error
  virtual void exchange(std::size_t step, Slot const& slot) const = 0;

  /// Whether before() and after() are anything.
  [[nodiscard]] virtual bool goes_inside() const noexcept { return false; }
  /// Calls among the ranks that Inside has, by their numbers there, before copies_out().
  [[nodiscard]] virtual std::vector<Call> before(std::size_t /*step*/) const { return {}; }
  /// And after copies_in().
  [[nodiscard]] virtual std::vector<Call> after(std::size_t /*step*/) const { return {}; }

  /// For people: "through pinned host memory"
  [[nodiscard]] virtual std::string way() const = 0;

 private:
  Call const call_;
};

}  // namespace weft::staged
