#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tensors.hpp"

namespace weft::torch_backend {

/// Tensors as the one flat buffer that collectives take: each in row-major order, one after the other. Their own memory
/// where they lie like that (chunks of one tensor, as torch's functional collectives pass them, or a single tensor),
/// else a buffer to copy to and from, so that tensors of any strides will do, also ones that differ between ranks. On a
/// GPU copies are enqueued on the current stream.
class FlatList {
 public:
  /// Not empty; all of one dtype. @throws c10::ValueError for tensors that are not on one device.
  FlatList(std::vector<at::Tensor> tensors, Place const& place, char const* name);

  [[nodiscard]] BufferView view() const noexcept { return view_; }
  [[nodiscard]] std::vector<std::size_t> const& counts() const noexcept { return counts_; }
  /// Of a tensor in the buffer, in elements.
  [[nodiscard]] std::size_t offset(int index) const noexcept {
    return std::accumulate(counts_.begin(), counts_.begin() + index, std::size_t{0});
  }
  /// Before pack(): the buffer is no memory that overlaps `recv`, unless that is the tensor at `index` itself.
  void keep_apart(BufferView const& recv, int index);
  void pack() const;    ///< the tensors' elements into the buffer
  void unpack() const;  ///< and back
  /// On a GPU: what is on the current stream so far uses the buffer, which stays that long.
  void record_use() const;

 private:
  void allocate();
  [[nodiscard]] at::Tensor part(std::size_t index, std::size_t offset) const;
  template <typename Copy>
  void for_each_part(Copy&& copy) const;

  std::vector<at::Tensor> tensors_;
  at::Tensor buffer_;  ///< undefined where the tensors' own memory serves
  BufferView view_;
  std::vector<std::size_t> counts_;
};

}  // namespace weft::torch_backend
