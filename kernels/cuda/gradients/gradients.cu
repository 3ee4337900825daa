#include "kernels/cuda/gradients/judge.hpp"
#include "kernels/cuda/gradients/loss_scale.hpp"
#include "kernels/cuda/gradients/measure.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::kernels::cuda {

WEFT_INSTANTIATE(MeasureChunksBody);
WEFT_INSTANTIATE(MeasureRangesBody);
WEFT_INSTANTIATE(MeasureListBody);
WEFT_INSTANTIATE(CombinePartsBody);
WEFT_INSTANTIATE(JudgeBody);
WEFT_INSTANTIATE(UpdateLossScaleBody);

}  // namespace weft::kernels::cuda
