#include "bucketing/unused_tensors.hpp"

#include <algorithm>
#include <cstring>

namespace weft {

UnusedTensors::UnusedTensors(GradientPresence const& presence, std::size_t tensors)
    : presence_(presence), aside_(tensors) {}

void UnusedTensors::send_zeros(BucketStorage const& storage, std::size_t tensor) {
  BufferView const view = storage.tensor(tensor);
  if (presence_.matters() && !presence_.always_anywhere(tensor) && view.count != 0) {
    auto const* const bytes = static_cast<std::byte const*>(view.data);
    aside_[tensor].assign(bytes, bytes + view.bytes());
    zeroed_.push_back(tensor);
  }
  storage.zero(tensor);
}

void UnusedTensors::settle(BucketStorage const& storage, std::size_t tensor) {
  auto const found = std::find(zeroed_.begin(), zeroed_.end(), tensor);
  if (found == zeroed_.end()) return;
  bool const keeps = !presence_.has_gradient(tensor);
  zeroed_.erase(found);
  if (keeps) std::memcpy(storage.tensor(tensor).data, aside_[tensor].data(), aside_[tensor].size());
}

void UnusedTensors::settle_all(BucketStorage const& storage) {
  while (!zeroed_.empty()) settle(storage, zeroed_.back());
}

}  // namespace weft
