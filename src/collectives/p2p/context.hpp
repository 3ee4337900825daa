#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call.hpp"
#include "transport/transport.hpp"

namespace weft::p2p {

using Request = Transport::Request;

/// What may be chosen about an algorithm; equal on all ranks.
struct Tuning {
  std::size_t chunk_bytes = std::size_t{64} << 10;  ///< of pipelines
  /// Whether partial results of 16-bit floats travel in their own type: half the bytes, but rounded at every step.
  /// False: they travel as f32 and are rounded once, like everywhere else in the library. 8-bit floats always do the
  /// latter.
  bool narrow_partials = false;
};

/// What an algorithm works with during one call: messages and memory. Apart from this rank's number, all that it tells
/// is equal on all ranks. Messages without bytes are not sent; both sides know that.
class Context {
 public:
  explicit Context(Transport& transport, Tuning const& tuning = {}) : transport_(transport), tuning_(tuning) {}

  [[nodiscard]] int rank() const noexcept { return transport_.rank(); }
  [[nodiscard]] int size() const noexcept { return transport_.size(); }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  [[nodiscard]] Tuning const& tuning() const noexcept { return tuning_; }
  [[nodiscard]] Transport& transport() const noexcept { return transport_; }
  /// Whether bytes are moved; where not, all memory is phantom.
  [[nodiscard]] bool carries_data() const noexcept { return transport_.phantom() == nullptr; }
  /// The rank that is `distance` further on (back, if negative), counted around.
  [[nodiscard]] int around(int distance) const noexcept { return ((rank() + distance) % size() + size()) % size(); }

  /// Memory that lasts as long as this context.
  [[nodiscard]] std::byte* workspace(std::size_t bytes);
  /// memmove(); does nothing where both are the same.
  void copy(void* to, void const* from, std::size_t bytes) const;

  [[nodiscard]] Request start_send(int to, void const* from, std::size_t bytes) {
    return bytes == 0 ? Request::none : transport_.start_send(to, {static_cast<std::byte const*>(from), bytes});
  }
  [[nodiscard]] Request start_recv(int from, void* to, std::size_t bytes) {
    return bytes == 0 ? Request::none : transport_.start_recv(from, {static_cast<std::byte*>(to), bytes});
  }
  void wait(Request& request) { transport_.wait(request); }
  void wait(std::span<Request> requests) {
    for (auto& request : requests) transport_.wait(request);
  }
  void send(int to, void const* from, std::size_t bytes) {
    auto request = start_send(to, from, bytes);
    wait(request);
  }
  void recv(int from, void* to, std::size_t bytes) {
    auto request = start_recv(from, to, bytes);
    wait(request);
  }
  void sendrecv(int to, void const* sent, std::size_t sent_bytes, int from, void* received, std::size_t bytes);

 private:
  Transport& transport_;
  Tuning tuning_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

[[nodiscard]] inline std::byte* at(void* base, std::size_t bytes) noexcept {
  return static_cast<std::byte*>(base) + bytes;
}
[[nodiscard]] inline std::byte const* at(void const* base, std::size_t bytes) noexcept {
  return static_cast<std::byte const*>(base) + bytes;
}

}  // namespace weft::p2p
