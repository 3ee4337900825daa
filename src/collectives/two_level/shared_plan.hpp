#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "collectives/staged/plan.hpp"
#include "collectives/two_level/levels.hpp"

namespace weft::two_level {

/// The plan of a collective on a whole buffer. Step k handles elements [k·width, (k+1)·width), as far as the buffer
/// reaches. Every place of a host has a share of them, as even as possible; only this share crosses to other hosts.
class SharedPlan : public staged::Plan {
 public:
  SharedPlan(Call call, Levels const& levels);

  [[nodiscard]] std::size_t steps() const noexcept override { return steps_; }
  [[nodiscard]] bool goes_inside() const noexcept override { return true; }

 protected:
  struct Range {
    std::size_t first = 0;  ///< element of the call's buffer
    std::size_t count = 0;
  };
  [[nodiscard]] Levels const& levels() const noexcept { return levels_; }
  [[nodiscard]] std::size_t element() const noexcept { return size_of(call().contract.dtype); }
  [[nodiscard]] std::size_t bytes_of(std::size_t elements) const noexcept { return elements * element(); }
  /// This rank's share.
  [[nodiscard]] Range own(std::size_t step) const noexcept { return share(step, levels_.place()); }
  /// A call about the shares of all places, its buffers not set.
  [[nodiscard]] InnerCall shares(std::size_t step, Operation equal, Operation unequal) const;
  /// This rank's share in host memory: what it gives and what it gets.
  [[nodiscard]] ConstBufferView given(std::size_t step, staged::Slot const& slot) const {
    return {slot.send, own(step).count, call().contract.dtype};
  }
  [[nodiscard]] BufferView got(std::size_t step, staged::Slot const& slot) const {
    return {slot.recv, own(step).count, call().contract.dtype};
  }
  [[nodiscard]] CollectiveOptions how() const { return {.timeout = call().timeout}; }

 private:
  [[nodiscard]] Range share(std::size_t step, int place) const noexcept;

  Levels const& levels_;
  std::size_t width_;
  std::size_t steps_;
};

}  // namespace weft::two_level
