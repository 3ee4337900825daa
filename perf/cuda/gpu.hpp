#pragma once

#include "common/options.hpp"
#include "cuda/device_sweep.hpp"

namespace weft::perf {

/// The GPU of `rank` among the `ranks` of this host, through CUDA's runtime and the NCCL that `config` names. If ranks
/// share GPUs, each claims to be on its own host (NCCL_HOSTID); otherwise NCCL refuses two ranks on one GPU.
/// @throws Error{unsupported}, with the same text on every rank, if there is no GPU, or fewer GPUs than ranks.
[[nodiscard]] Gpu open_gpu(Options const& options, Config const& config, int rank, int ranks);

}  // namespace weft::perf
