#include "lists.hpp"

#include <cstring>

#include <ATen/ops/empty.h>

namespace weft::torch_backend {

FlatList::FlatList(std::vector<at::Tensor> const& tensors, Place const& place, char const* name) : tensors_(tensors) {
  bool adjacent = true;
  std::size_t total = 0;
  for (auto const& tensor : tensors_) {
    check_same_type(tensor, tensors_[0], place);
    auto const part = torch_backend::view(tensor, place, name);
    if (total == 0) view_ = part;
    adjacent = adjacent && (part.count == 0 || part.data == view_.slice(total, 0).data);
    counts_.push_back(part.count);
    total += part.count;
  }
  view_.count = total;
  if (adjacent) return;
  buffer_ = at::empty({static_cast<std::int64_t>(total)}, tensors_[0].options());
  view_.data = buffer_.data_ptr();
}

template <typename Copy>
void FlatList::for_each_part(Copy&& copy) const {
  if (!buffer_.defined()) return;
  auto* next = static_cast<std::byte*>(view_.data);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto const bytes = counts_[i] * size_of(view_.dtype);
    if (bytes > 0) copy(next, tensors_[i].data_ptr(), bytes);
    next += bytes;
  }
}

void FlatList::pack() const {
  for_each_part([](void* part, void const* tensor, std::size_t bytes) { std::memcpy(part, tensor, bytes); });
}

void FlatList::unpack() const {
  for_each_part([](void const* part, void* tensor, std::size_t bytes) { std::memcpy(tensor, part, bytes); });
}

}  // namespace weft::torch_backend
