// What checkpoints put into a ZeroOptimizer.
#include "sharding/device_values.hpp"
#include "sharding/zero_impl.hpp"

namespace weft {

void ZeroOptimizer::Impl::set_whole(std::size_t index, std::span<float const> values) {
  write_values(values, parameters_.tensor(index), compute_);
}

void ZeroOptimizer::Impl::share_parameters() {
  wait_parameters();
  guarded([this] { launch_gathers(0); });
}

}  // namespace weft
