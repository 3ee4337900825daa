#include "optim/cuda/device_state.hpp"

namespace weft::cuda {

StateLayout lay_out(BufferView const& parameter, OptimizerOptions const& options, OptimizerSettings const& settings,
                    std::size_t& end) {
  auto const append = [&end](std::size_t bytes) {
    constexpr std::size_t kAlignment = 256;
    std::size_t const begin = end;
    end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  };
  std::size_t const count = parameter.count;
  bool const packs = settings.state == StateType::block8;
  StateLayout layout;
  if (settings.master_weights && parameter.dtype != DataType::f32) layout.master = append(count * sizeof(float));
  for (std::size_t which = 0; which < state_names(options).size(); ++which) {
    layout.values[which] = append(packs ? count : count * sizeof(float));
    if (packs) {
      layout.scales[which] = append((count + kernels::kStateBlock - 1) / kernels::kStateBlock * sizeof(float));
    }
  }
  return layout;
}

}  // namespace weft::cuda
