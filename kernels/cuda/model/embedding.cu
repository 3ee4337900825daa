#include "kernels/cuda/model/embedding.hpp"

#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(EmbeddingBody);
WEFT_INSTANTIATE(EmbeddingGradientBody);

}  // namespace weft::kernels::cuda
