#include "bucketing/unused_tensors.hpp"

namespace weft {

UnusedTensors::UnusedTensors(GradientPresence const& presence, std::size_t tensors)
    : presence_(presence), aside_(tensors), is_aside_(tensors) {}

void UnusedTensors::send_zeros(BucketStorage const& storage, std::size_t tensor) {
  BufferView const view = storage.tensor(tensor);
  if (presence_.matters() && !presence_.always_anywhere(tensor) && view.count != 0) {
    if (aside_[tensor].data() == nullptr) aside_[tensor] = storage.room_for(tensor);
    storage.copy_out(tensor, aside_[tensor]);
    is_aside_[tensor] = 1;
    zeroed_.push_back(tensor);
  }
  storage.zero(tensor);
}

void UnusedTensors::settle(BucketStorage const& storage, std::size_t tensor) {
  if (!is_aside(tensor)) return;
  bool const keeps = !presence_.has_gradient(tensor);
  is_aside_[tensor] = 0;
  if (keeps) storage.copy_back(tensor, aside_[tensor]);
}

void UnusedTensors::settle_all(BucketStorage const& storage) {
  for (std::size_t const tensor : zeroed_) settle(storage, tensor);
  zeroed_.clear();
}

}  // namespace weft
