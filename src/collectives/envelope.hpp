#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace weft {

/// The first of what a message consists of: what it is, and up to 2 KiB of it.
struct Envelope {
  static constexpr std::size_t kCapacity = std::size_t{2} << 10;

  std::uint64_t bytes = 0;  ///< of the whole message
  std::uint64_t dtype = 0;
  std::array<std::byte, kCapacity> payload{};
};

/// Envelopes that came for receives which were then withdrawn: they wait for the receive that asks for the same message
/// again. Any thread.
class ReturnedEnvelopes {
 public:
  void put(int peer, std::uint64_t number, Envelope const& envelope) {
    std::lock_guard const lock(mutex_);
    kept_[{peer, number}] = std::make_unique<Envelope>(envelope);
  }

  /// False, and `envelope` stays as it is, where none was returned.
  [[nodiscard]] bool take(int peer, std::uint64_t number, Envelope& envelope) {
    std::lock_guard const lock(mutex_);
    if (kept_.empty()) return false;
    auto const kept = kept_.extract({peer, number});
    if (!kept) return false;
    envelope = *kept.mapped();
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, std::uint64_t>, std::unique_ptr<Envelope>> kept_;
};

}  // namespace weft
