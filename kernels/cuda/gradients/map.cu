#include "kernels/cuda/gradients/map.hpp"

#include "kernels/cuda/gradients/compress.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(MapBody<ScaleOp>);
WEFT_INSTANTIATE(MapBody<ScaleAndCheckOp>);
WEFT_INSTANTIATE(MapBody<ClampOp>);
WEFT_INSTANTIATE(MapBody<AxpbyOp>);
WEFT_INSTANTIATE(ConvertBody);
WEFT_INSTANTIATE(AddBody);
WEFT_INSTANTIATE(CompressBody);

}  // namespace weft::kernels::cuda
