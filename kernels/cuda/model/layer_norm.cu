#include "kernels/cuda/model/layer_norm.hpp"

#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(LayerNormBody);
WEFT_INSTANTIATE(LayerNormInputBody);
WEFT_INSTANTIATE(LayerNormGradientBody);
WEFT_INSTANTIATE(ColumnSumsBody<LayerNormWeights>);
WEFT_INSTANTIATE(FinishColumnsBody);

}  // namespace weft::kernels::cuda
