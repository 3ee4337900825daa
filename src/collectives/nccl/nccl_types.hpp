#pragma once

#include "collectives/call.hpp"
#include "collectives/nccl/nccl_functions.hpp"
#include "weft/communicator.hpp"

namespace weft::nccl {

/// How NCCL names a call's elements: each of Weft's is `each` of NCCL's.
struct Elements {
  ncclDataType_t type = ncclUint8;
  std::size_t each = 1;
};

/// For moving: what NCCL has no name for goes as bytes.
[[nodiscard]] Elements elements_to_move(DataType dtype) noexcept;

/// For reducing. premul_sum's operator is made for each call; `op` is ncclSum for it.
struct ReducedElements {
  Elements elements;
  ncclRedOp_t op = ncclSum;
};

/// @throws Error{unsupported} naming operator, type and what to do.
[[nodiscard]] ReducedElements elements_to_reduce(Call const& call);

/// Whether NCCL can do the call at all, in the order of additions that `reproducibility` asks for.
/// @throws Error{unsupported}
void check_supported(Call const& call, Reproducibility reproducibility);

/// premul_sum's scale as an element of NCCL's type.
struct Scalar {
  alignas(8) std::byte bytes[8];
};
[[nodiscard]] Scalar scalar_of(double scale, ncclDataType_t type) noexcept;

}  // namespace weft::nccl
