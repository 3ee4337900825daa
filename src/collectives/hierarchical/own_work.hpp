#pragma once

#include <cstddef>
#include <span>

#include "kernels/cpu/reduce.hpp"
#include "transport/transport.hpp"
#include "weft/buffer.hpp"

namespace weft::hierarchical {

/// What a rank does by itself within a call: it allocates memory, and copies and combines data. In a simulation
/// combining takes virtual time, and where only sizes move no data is touched (see Transport::phantom()).
class OwnWork {
 public:
  /// `simulated`: a transport of the simulation, which must outlive this object; null where time is real.
  explicit OwnWork(Transport* simulated = nullptr) noexcept : simulated_(simulated) {}

  /// Whether buffers hold data; false where a simulation moves sizes only.
  [[nodiscard]] bool carries_data() const noexcept { return phantom() == nullptr; }
  /// @throws Error{out_of_memory}
  [[nodiscard]] Buffer memory(std::size_t count, DataType dtype) const;
  void copy(void* to, void const* from, std::size_t bytes) const;
  /// As kernels::reduce, to one destination.
  void reduce(void* destination, std::span<void const* const> sources, std::size_t count, DataType dtype,
              kernels::Reducer const& how) const;

 private:
  [[nodiscard]] std::byte* phantom() const noexcept { return simulated_ == nullptr ? nullptr : simulated_->phantom(); }

  Transport* simulated_;
};

}  // namespace weft::hierarchical
