#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/optim/packed.hpp"
#include "kernels/cuda/optim/update.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(UpdateBody<AdamRule<false>>);
WEFT_INSTANTIATE(PackedUpdateBody<AdamRule<false>>);

}  // namespace weft::kernels::cuda
