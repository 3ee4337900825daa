#include "kernels/cuda/optim/step.hpp"

#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(BeginStepBody);
WEFT_INSTANTIATE(SetGradientsBody);

}  // namespace weft::kernels::cuda
