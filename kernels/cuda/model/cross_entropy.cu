#include "kernels/cuda/model/cross_entropy.hpp"

#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(CrossEntropyBody);
WEFT_INSTANTIATE(MeanLossBody);
WEFT_INSTANTIATE(CrossEntropyGradientBody);

}  // namespace weft::kernels::cuda
