#include "collectives/hierarchical/own_work.hpp"

#include <memory>

namespace weft::hierarchical {

Buffer OwnWork::memory(std::size_t count, DataType dtype) const {
  if (carries_data()) return Buffer::host(count, dtype);
  return {std::shared_ptr<void>(std::shared_ptr<void>(), phantom()), count, dtype, Device{}};
}

void OwnWork::copy(void* to, void const* from, std::size_t bytes) const {
  if (bytes > 0 && to != from && carries_data()) kernels::copy(to, from, bytes);
}

void OwnWork::reduce(void* destination, std::span<void const* const> sources, std::size_t count, DataType dtype,
                     kernels::Reducer const& how) const {
  if (carries_data()) kernels::reduce({&destination, 1}, sources, count, dtype, how);
  if (simulated_ != nullptr) simulated_->reduced(count * size_of(dtype) * (sources.size() - 1));
}

}  // namespace weft::hierarchical
