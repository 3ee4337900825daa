#pragma once

#include <ostream>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "weft/buffer.hpp"
#include "weft/reduction.hpp"

namespace weft::torch_backend {

/// The beginning of error texts about a call: "weft: rank 1: all_reduce".
struct Place {
  int rank;
  char const* operation;
};
std::ostream& operator<<(std::ostream& out, Place const& place);

/// Weft's element type of a tensor; for dtypes that Weft does not reduce (8-bit scales, complex halves) the unsigned
/// integer of the same size, which moves them. @throws c10::TypeError naming a dtype that has no such size.
[[nodiscard]] DataType data_type(at::Tensor const& tensor, Place const& place);

/// The only tensor of a call to which torch passes a list. @throws c10::ValueError unless there is exactly one.
[[nodiscard]] at::Tensor const& only(std::vector<at::Tensor> const& tensors, Place const& place);

/// The memory of a tensor whose elements lie without gaps, in whatever order of dimensions. @throws c10::ValueError
/// saying what is wrong with this one (device, layout, strides) and what to do.
[[nodiscard]] BufferView view(at::Tensor const& tensor, Place const& place, char const* name);

/// As view(), for a tensor whose elements must also lie in row-major order.
[[nodiscard]] BufferView contiguous_view(at::Tensor const& tensor, Place const& place, char const* name);

/// @throws c10::ValueError unless the tensor's elements lie somewhere in the memory of the CPU or a GPU, whatever the
/// strides.
void check_reachable(at::Tensor const& tensor, Place const& place, char const* name);

/// Whether the two views have memory in common.
[[nodiscard]] bool overlaps(BufferView one, BufferView other);

/// `input`, whose memory is `send`, or a copy of it if `send` overlaps `recv` in a way that is not in place. In place
/// means that the smaller of the two is this rank's share of the larger, which starts there at element `share`. Torch's
/// own back ends accept such overlaps, but Weft's core refuses them.
[[nodiscard]] at::Tensor apart(at::Tensor const& input, BufferView send, BufferView recv, std::size_t share);

/// @throws c10::ValueError unless both have the same dtype and shape.
void check_alike(at::Tensor const& one, at::Tensor const& other, Place const& place, char const* name);

/// @throws c10::ValueError unless both have the same dtype.
void check_same_type(at::Tensor const& one, at::Tensor const& other, Place const& place);

/// Weft's reduction for torch's `op` on elements of the tensor's type. @throws c10::TypeError for dtypes that are only
/// moved.
[[nodiscard]] Reduction reduction(c10d::ReduceOp const& op, at::Tensor const& tensor, Place const& place);

}  // namespace weft::torch_backend
