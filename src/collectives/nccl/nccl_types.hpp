#pragma once

#include "collectives/call.hpp"
#include "collectives/nccl/nccl_functions.hpp"
#include "weft/communicator.hpp"

namespace weft::nccl {

/// NCCL's type for a call's elements: one of Weft's elements is `each` elements of `type`.
struct Elements {
  ncclDataType_t type = ncclUint8;
  std::size_t each = 1;
};

/// For calls that only move data: types that NCCL does not have go as bytes.
[[nodiscard]] Elements elements_to_move(DataType dtype) noexcept;

/// For calls that reduce. premul_sum needs an operator made for each call; for it `op` is ncclSum.
struct ReducedElements {
  Elements elements;
  ncclRedOp_t op = ncclSum;
};

/// @throws Error{unsupported} naming operator, type and what to do.
[[nodiscard]] ReducedElements elements_to_reduce(Call const& call);

/// @throws Error{unsupported} if NCCL cannot do the call at all, or not in the order of additions that
/// `reproducibility` asks for.
void check_supported(Call const& call, Reproducibility reproducibility);

/// premul_sum's scale as an element of NCCL's type.
struct Scalar {
  alignas(8) std::byte bytes[8];
};
[[nodiscard]] Scalar scalar_of(double scale, ncclDataType_t type) noexcept;

}  // namespace weft::nccl
