#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/optim/packed.hpp"
#include "kernels/cuda/optim/update.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(UpdateBody<AdagradRule>);
WEFT_INSTANTIATE(PackedUpdateBody<AdagradRule>);

}  // namespace weft::kernels::cuda
