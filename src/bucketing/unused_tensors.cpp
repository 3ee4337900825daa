#include "bucketing/unused_tensors.hpp"

#include <algorithm>

namespace weft {

UnusedTensors::UnusedTensors(GradientPresence const& presence, std::size_t tensors)
    : presence_(presence), aside_(tensors) {}

void UnusedTensors::send_zeros(BucketStorage const& storage, std::size_t tensor) {
  BufferView const view = storage.tensor(tensor);
  if (presence_.matters() && !presence_.always_anywhere(tensor) && view.count != 0) {
    if (aside_[tensor].data() == nullptr) aside_[tensor] = storage.room_for(tensor);
    storage.copy_out(tensor, aside_[tensor]);
    zeroed_.push_back(tensor);
  }
  storage.zero(tensor);
}

void UnusedTensors::settle(BucketStorage const& storage, std::size_t tensor) {
  auto const found = std::find(zeroed_.begin(), zeroed_.end(), tensor);
  if (found == zeroed_.end()) return;
  bool const keeps = !presence_.has_gradient(tensor);
  zeroed_.erase(found);
  if (keeps) storage.copy_back(tensor, aside_[tensor]);
}

void UnusedTensors::settle_all(BucketStorage const& storage) {
  while (!zeroed_.empty()) settle(storage, zeroed_.back());
}

}  // namespace weft
