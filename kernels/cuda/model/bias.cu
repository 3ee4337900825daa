#include "kernels/cuda/model/bias.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/model/bias_gelu.hpp"
#include "kernels/cuda/model/columns.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(BiasActivationBody<Identity>);
WEFT_INSTANTIATE(BiasAddBody);
WEFT_INSTANTIATE(ColumnSumsBody<BiasGradient>);

}  // namespace weft::kernels::cuda
