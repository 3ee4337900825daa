#include "bucketing/unused_tensors.hpp"

#include <algorithm>
#include <cstring>

namespace weft {

UnusedTensors::UnusedTensors(UnusedGradients mode, std::size_t tensors) : mode_(mode) {
  if (mode == UnusedGradients::zero) return;
  here_.resize(tensors);
  anywhere_.resize(tensors);
  aside_.resize(tensors);
}

void UnusedTensors::send_zeros(BucketStorage const& storage, std::size_t tensor) {
  BufferView const view = storage.tensor(tensor);
  bool const wanted_again = mode_ != UnusedGradients::zero && !(learnt_ && anywhere_[tensor] != 0);
  if (wanted_again && view.count != 0) {
    auto const* const bytes = static_cast<std::byte const*>(view.data);
    aside_[tensor].assign(bytes, bytes + view.bytes());
    zeroed_.push_back(tensor);
  }
  storage.zero(tensor);
}

void UnusedTensors::agree(Communicator& communicator, Stream const& stream, ReadyTracker const& tracker) {
  if (mode_ == UnusedGradients::zero || learnt_ || here_.empty()) return;
  for (std::size_t i = 0; i < here_.size(); ++i) here_[i] = tracker.has_gradient(i) ? 1 : 0;
  agreement_ = communicator.all_reduce(std::span<std::uint8_t const>(here_), std::span<std::uint8_t>(anywhere_),
                                       ReduceOp::max, {stream, {}});
}

void UnusedTensors::settle(BucketStorage const& storage, std::size_t tensor) {
  if (mode_ == UnusedGradients::zero || (!learnt_ && here_[tensor] != 0)) return;
  agreement_.wait();
  auto const found = std::find(zeroed_.begin(), zeroed_.end(), tensor);
  if (found == zeroed_.end()) return;
  zeroed_.erase(found);
  if (anywhere_[tensor] == 0) std::memcpy(storage.tensor(tensor).data, aside_[tensor].data(), aside_[tensor].size());
}

void UnusedTensors::settle_all(BucketStorage const& storage) {
  agreement_.wait();
  while (!zeroed_.empty()) settle(storage, zeroed_.back());
}

void UnusedTensors::drain() const noexcept {
  try {
    agreement_.wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever asked has been told
  }
}

std::vector<std::size_t> UnusedTensors::learn() {
  std::vector<std::size_t> never;
  if (mode_ != UnusedGradients::fixed || learnt_) return never;
  learnt_ = true;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    if (here_[i] == 0) never.push_back(i);
  }
  return never;
}

std::optional<std::size_t> UnusedTensors::missing(ReadyTracker const& tracker) const {
  if (!learnt_) return std::nullopt;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    if (here_[i] != 0 && !tracker.has_gradient(i)) return i;
  }
  return std::nullopt;
}

}  // namespace weft
