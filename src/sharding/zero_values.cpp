// What checkpoints put into a ZeroOptimizer.
#include "kernels/cpu/optim/gradients.hpp"
#include "sharding/zero_impl.hpp"

namespace weft {

void ZeroOptimizer::Impl::set_whole(std::size_t index, std::span<float const> values) {
  BufferView const parameter = parameters_.tensor(index);
  kernels::convert(values.data(), DataType::f32, parameter.data, parameter.dtype, values.size());
}

void ZeroOptimizer::Impl::share_parameters() {
  wait_parameters();
  guarded([this] { launch_gathers(); });
}

}  // namespace weft
