#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/optim/packed.hpp"
#include "kernels/cuda/optim/update.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(UpdateBody<SgdRule<true>>);
WEFT_INSTANTIATE(PackedUpdateBody<SgdRule<true>>);
WEFT_INSTANTIATE(UpdateBody<SgdRule<false>>);  // keeps no states

}  // namespace weft::kernels::cuda
