#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/optim/lamb_norms.hpp"
#include "kernels/cuda/optim/packed.hpp"
#include "kernels/cuda/optim/update.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(UpdateBody<LambMomentsRule>);
WEFT_INSTANTIATE(PackedUpdateBody<LambMomentsRule>);
WEFT_INSTANTIATE(UpdateBody<LambApplyRule>);
WEFT_INSTANTIATE(PackedUpdateBody<LambApplyRule>);
WEFT_INSTANTIATE(TensorNormsBody);
WEFT_INSTANTIATE(MoveNormsBody);
WEFT_INSTANTIATE(SetNormsBody);

}  // namespace weft::kernels::cuda
