#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/optim/packed.hpp"
#include "kernels/cuda/optim/update.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(UpdateBody<AdamRule<true>>);
WEFT_INSTANTIATE(PackedUpdateBody<AdamRule<true>>);

}  // namespace weft::kernels::cuda
