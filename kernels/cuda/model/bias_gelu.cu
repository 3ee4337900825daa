#include "kernels/cuda/model/bias_gelu.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/model/columns.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(BiasActivationBody<Gelu>);
WEFT_INSTANTIATE(BiasActivationBody<QuickGelu>);
WEFT_INSTANTIATE(BiasActivationBody<ErfGelu>);
WEFT_INSTANTIATE(ColumnSumsBody<BiasActivationGradient<Gelu>>);
WEFT_INSTANTIATE(ColumnSumsBody<BiasActivationGradient<QuickGelu>>);
WEFT_INSTANTIATE(ColumnSumsBody<BiasActivationGradient<ErfGelu>>);

}  // namespace weft::kernels::cuda
