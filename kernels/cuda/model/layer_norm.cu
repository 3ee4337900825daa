#include "kernels/cuda/model/layer_norm.hpp"

#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(LayerNormBody);
WEFT_INSTANTIATE(LayerNormInputBody);
WEFT_INSTANTIATE(LayerNormGradientBody<128>);
WEFT_INSTANTIATE(LayerNormGradientBody<256>);
WEFT_INSTANTIATE(LayerNormGradientBody<512>);
WEFT_INSTANTIATE(LayerNormGradientBody<1024>);
WEFT_INSTANTIATE(ColumnSumsBody<LayerNormWeights>);
WEFT_INSTANTIATE(FinishColumnsBody);

}  // namespace weft::kernels::cuda
