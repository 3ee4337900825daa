#pragma once

#include "common/options.hpp"
#include "cuda/device_sweep.hpp"

namespace weft::perf {

/// The GPU of `rank` among `ranks` of this host, through CUDA's runtime and the NCCL that `config` names. Where ranks
/// share GPUs each claims to be on a host of its own (NCCL_HOSTID), without which NCCL refuses two on one.
/// @throws Error{unsupported}, the same words on every rank, where there is no GPU, or fewer than ranks.
[[nodiscard]] Gpu open_gpu(Options const& options, Config const& config, int rank, int ranks);

}  // namespace weft::perf
