#include "kernels/cuda/model/layer_norm.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/model/columns.hpp"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(LayerNormBody);
WEFT_INSTANTIATE(LayerNormInputBody);
WEFT_INSTANTIATE(ColumnSumsBody<LayerNormWeights>);
WEFT_INSTANTIATE(FinishColumnsBody);

}  // namespace weft::kernels::cuda
