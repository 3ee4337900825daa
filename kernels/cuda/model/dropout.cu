#include "kernels/cuda/model/dropout.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/model/columns.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(BiasDropoutAddBody);
WEFT_INSTANTIATE(ColumnSumsBody<BiasDropoutGradient>);

}  // namespace weft::kernels::cuda
