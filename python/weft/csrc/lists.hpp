#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tensors.hpp"

namespace weft::torch_backend {

/// A list of tensors as one flat buffer for collectives: each tensor in row-major order, one after the other. If the
/// tensors already lie like this (chunks of one tensor, as torch's functional collectives pass them, or a single
/// tensor), it is their own memory. Otherwise it is a buffer to copy to and from, so that tensors may have any strides,
/// even different ones on each rank. On a GPU copies are enqueued on the current stream.
class FlatList {
 public:
  /// Not empty; all of one dtype. @throws c10::ValueError for tensors that are not on one device.
  FlatList(std::vector<at::Tensor> tensors, Place const& place, char const* name);

  [[nodiscard]] BufferView view() const noexcept { return view_; }
  [[nodiscard]] std::vector<std::size_t> const& counts() const noexcept { return counts_; }
  /// Where a tensor begins in the buffer, in elements.
  [[nodiscard]] std::size_t offset(int index) const noexcept {
    return std::accumulate(counts_.begin(), counts_.begin() + index, std::size_t{0});
  }
  /// Call it before pack(): makes sure that the buffer does not overlap `recv`, unless that is the tensor at `index`
  /// itself.
  void keep_apart(BufferView const& recv, int index);
  void pack() const;    ///< copies the tensors' elements into the buffer
  void unpack() const;  ///< copies them back
  /// On a GPU: keeps the buffer until everything on the current stream so far has run.
  void record_use() const;

 private:
  void allocate();
  [[nodiscard]] at::Tensor part(std::size_t index, std::size_t offset) const;
  template <typename Copy>
  void for_each_part(Copy&& copy) const;

  std::vector<at::Tensor> tensors_;
  at::Tensor buffer_;  ///< undefined if the tensors' own memory is used
  BufferView view_;
  std::vector<std::size_t> counts_;
};

}  // namespace weft::torch_backend
