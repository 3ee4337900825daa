#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tensors.hpp"

namespace weft::torch_backend {

/// Tensors, one per rank, as the one flat buffer that collectives take: their own memory where they lie one after the
/// other (chunks of one tensor, as torch's functional collectives pass them), else a buffer to copy to and from.
class FlatList {
 public:
  /// Not empty; all of one dtype.
  FlatList(std::vector<at::Tensor> const& tensors, Place const& place, char const* name);

  [[nodiscard]] BufferView view() const noexcept { return view_; }
  [[nodiscard]] std::vector<std::size_t> const& counts() const noexcept { return counts_; }
  void pack() const;    ///< the tensors' elements into the buffer
  void unpack() const;  ///< and back

 private:
  template <typename Copy>
  void for_each_part(Copy&& copy) const;

  std::vector<at::Tensor> tensors_;
  at::Tensor buffer_;  ///< undefined where the tensors' own memory serves
  BufferView view_;
  std::vector<std::size_t> counts_;
};

}  // namespace weft::torch_backend
