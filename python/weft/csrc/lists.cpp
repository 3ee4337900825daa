#include "lists.hpp"

#include <cstring>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "device.hpp"

namespace weft::torch_backend {
namespace {

/// Whether a tensor's memory has its elements row by row with the values that torch shows. z.conj() and its imag are
/// shown conjugated or negated, so their values differ from those in memory.
bool lies_as_shown(at::Tensor const& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/// Copies without torch's threads if possible, because the copies of one call are not worth waking them.
void assign(at::Tensor const& to, at::Tensor const& from) {
  if (to.is_cpu() && lies_as_shown(to) && lies_as_shown(from)) {
    std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
  } else {
    to.copy_(from);
  }
}

}  // namespace

FlatList::FlatList(std::vector<at::Tensor> tensors, Place const& place, char const* name)
    : tensors_(std::move(tensors)),
      view_{nullptr, 0, data_type(tensors_[0], place), weft_device(tensors_[0].device())} {
  bool adjacent = true;
  for (auto const& tensor : tensors_) {
    check_reachable(tensor, place, name);
    check_same_type(tensor, tensors_[0], place);
    TORCH_CHECK_VALUE(tensor.device() == tensors_[0].device(), place, ": the list of ", name, " tensors is on ",
                      tensors_[0].device(), " and on ", tensor.device(), "; move all to one device");
    auto const count = static_cast<std::size_t>(tensor.numel());
    counts_.push_back(count);
    if (count == 0) continue;
    if (view_.count == 0) view_.data = tensor.data_ptr();
    adjacent = adjacent && lies_as_shown(tensor) && tensor.data_ptr() == view_.slice(view_.count, 0).data;
    view_.count += count;
  }
  if (!adjacent) allocate();
}

void FlatList::keep_apart(BufferView const& recv, int index) {
  if (overlaps(view_, recv) && view_.slice(offset(index), 0).data != recv.data) allocate();
}

void FlatList::allocate() {
  buffer_ = at::empty({static_cast<std::int64_t>(view_.count)}, tensors_[0].options());
  view_.data = buffer_.data_ptr();
}

at::Tensor FlatList::part(std::size_t index, std::size_t offset) const {
  return buffer_.narrow(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(counts_[index]))
      .view(tensors_[index].sizes());
}

template <typename Copy>
void FlatList::for_each_part(Copy&& copy) const {
  if (!buffer_.defined()) return;
  // As with other back ends, autograd must not see these writes, on any thread.
  at::AutoDispatchBelowADInplaceOrView const below_autograd;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (counts_[i] > 0) copy(part(i, offset), tensors_[i]);
    offset += counts_[i];
  }
}

void FlatList::pack() const {
  for_each_part([](at::Tensor const& part, at::Tensor const& tensor) { assign(part, tensor); });
}

void FlatList::unpack() const {
  for_each_part([](at::Tensor const& part, at::Tensor const& tensor) { assign(tensor, part); });
  record_use();
}

void FlatList::record_use() const {
  record_use_here(buffer_);
}

}  // namespace weft::torch_backend
