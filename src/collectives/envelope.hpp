#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace weft {

/// The first packet of a message: its size and type, and up to 2 KiB of its content.
struct Envelope {
  static constexpr std::size_t kCapacity = std::size_t{2} << 10;

  std::uint64_t bytes = 0;  ///< of the whole message
  std::uint64_t dtype = 0;
  std::array<std::byte, kCapacity> payload{};
};

/// Keeps the envelopes of receives that were withdrawn after the envelope had come, until another receive asks for the
/// same message. Any thread.
class ReturnedEnvelopes {
 public:
  void put(int peer, std::uint64_t number, Envelope const& envelope) {
    std::lock_guard const lock(mutex_);
    kept_[{peer, number}] = std::make_unique<Envelope>(envelope);
  }

  /// Takes the envelope of message `number` from `peer`. False, and `envelope` stays as it is, where none was put back.
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
