#include "kernels/cuda/model/causal_softmax.hpp"

#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(CausalSoftmaxBody);
WEFT_INSTANTIATE(CausalSoftmaxGradientBody);

}  // namespace weft::kernels::cuda
