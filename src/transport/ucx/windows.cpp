#include "transport/ucx/windows.hpp"

#include <utility>

namespace weft::ucx {

std::optional<Windows::Key> Windows::begin(std::shared_ptr<void> memory, std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  auto& worker = channel_->worker();
  next_ = {.memory = std::move(memory), .bytes = bytes};
  next_.registration = worker.register_memory(next_.memory.get(), bytes);
  if (next_.registration == nullptr) return std::nullopt;
  Key key{reinterpret_cast<std::uint64_t>(next_.memory.get()), worker.pack_key(next_.registration)};
  return key.packed.empty() ? std::nullopt : std::optional(std::move(key));
}

std::shared_ptr<void> Windows::complete(std::vector<Key> const& keys) {
  std::lock_guard const lock(mutex_);
  auto memory = next_.memory;
  if (keys.empty()) {
    drop_memory(next_);
    return memory;
  }
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    auto const peer = static_cast<int>(rank);
    auto const is_own = peer == channel_->rank();
    next_.addresses.push_back(keys[rank].address);
    next_.keys.push_back(is_own ? nullptr : channel_->worker().unpack_key(peer, keys[rank].packed));
    next_.is_reached = next_.is_reached && (is_own || next_.keys.back() != nullptr);
  }
  auto const number = ++latest_;
  windows_[number] = std::exchange(next_, {});
  auto const release = [windows = weak_from_this(), number, memory](void*) {
    if (auto const alive = windows.lock()) alive->release(number);
  };
  return {memory.get(), release};
}

bool Windows::has_any() const noexcept {
  std::lock_guard const lock(mutex_);
  return latest_ != Place::kNone;
}

Windows::Place Windows::find(void const* data, std::size_t bytes) const noexcept {
  std::lock_guard const lock(mutex_);
  auto const address = reinterpret_cast<std::uint64_t>(data);
  for (auto const& [number, window] : windows_) {
    auto const start = reinterpret_cast<std::uint64_t>(window.memory.get());
    if (window.memory != nullptr && window.is_used && address >= start && address + bytes <= start + window.bytes)
      return {number, address - start};
  }
  return {};
}

void Windows::start_put(Pending& operation, int to, std::span<std::byte const> bytes, Place const& place) {
  std::lock_guard const lock(mutex_);
  auto const& window = windows_.at(place.window);
  auto const rank = static_cast<std::size_t>(to);
  channel_->worker().start_put(operation, to, bytes, window.addresses[rank] + place.offset, window.keys[rank]);
}

bool Windows::reaches_latest() const noexcept {
  std::lock_guard const lock(mutex_);
  auto const latest = windows_.find(latest_);
  return latest != windows_.end() && latest->second.is_reached;
}

void Windows::disuse_latest() noexcept {
  std::lock_guard const lock(mutex_);
  auto const latest = windows_.find(latest_);
  if (latest != windows_.end()) latest->second.is_used = false;
}

std::uint64_t Windows::first_held() const noexcept {
  std::lock_guard const lock(mutex_);
  for (auto const& [number, window] : windows_) {
    if (window.memory != nullptr) return number;
  }
  return latest_ + 1;
}

void Windows::forget_before(std::uint64_t number) noexcept {
  std::lock_guard const lock(mutex_);
  while (!windows_.empty() && windows_.begin()->first < number) {
    drop_keys(windows_.begin()->second);
    windows_.erase(windows_.begin());
  }
}

void Windows::release(std::uint64_t number) noexcept {
  std::lock_guard const lock(mutex_);
  auto const window = windows_.find(number);
  if (window != windows_.end()) drop_memory(window->second);
}

void Windows::close() noexcept {
  std::lock_guard const lock(mutex_);
  if (channel_ == nullptr) return;
  drop_memory(next_);
  for (auto& [number, window] : windows_) {
    drop_memory(window);
    drop_keys(window);
  }
  windows_.clear();
  channel_ = nullptr;
}

void Windows::drop_memory(Window& window) noexcept {
  if (channel_ == nullptr || window.memory == nullptr) return;
  channel_->worker().deregister(std::exchange(window.registration, nullptr));
  if (channel_->has_failed()) kept_.push_back(std::move(window.memory));
  window.memory = nullptr;
}

void Windows::drop_keys(Window& window) noexcept {
  for (auto* const key : window.keys) channel_->worker().forget_key(key);
  window.keys.clear();
}

}  // namespace weft::ucx
