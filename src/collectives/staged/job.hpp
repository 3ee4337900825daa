#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/message.hpp"
#include "collectives/staged/plan.hpp"
#include "runtime/cuda/cuda_work.hpp"

namespace weft::staged {

/// A collective, or messages that complete together, on their way through the host. One thread makes and enqueues it,
/// the courier's carries it.
struct Job {
  Call call;                       ///< its number, time limit and what reports say of it
  std::unique_ptr<Plan> plan;      ///< of a collective
  std::vector<Message> messages;   ///< or these; `data` is pinned memory, whole
  std::vector<void*> device_data;  ///< where their data is on the device
  std::vector<std::shared_ptr<std::byte>> memory;
  std::uint32_t first = 0;  ///< number of its first step
  std::uint32_t steps = 1;
  std::shared_ptr<cuda::SharedFailure> failure;        ///< its Work's
  std::chrono::steady_clock::time_point exchanged_at;  ///< the courier's: when the host was through

  /// Set by the enqueueing thread when it is through: with a Work, or without where it failed.
  std::shared_ptr<cuda::CudaWork> work;
  std::atomic<bool> enqueued{false};

  [[nodiscard]] Copies copies_out(std::size_t step, Slot const& slot) const {
    return plan ? plan->copies_out(step, slot) : message_copies(Message::Direction::send);
  }
  [[nodiscard]] Copies copies_in(std::size_t step, Slot const& slot) const {
    return plan ? plan->copies_in(step, slot) : message_copies(Message::Direction::receive);
  }
  [[nodiscard]] Copies message_copies(Message::Direction direction) const {
    Copies copies;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].direction != direction || messages[i].bytes == 0) continue;
      auto* const host = static_cast<std::byte*>(messages[i].data);
      auto* const device = static_cast<std::byte*>(device_data[i]);
      bool const sends = direction == Message::Direction::send;
      copies.push_back({.to = sends ? host : device, .from = sends ? device : host, .width = messages[i].bytes});
    }
    return copies;
  }

  /// Whether GPUs exchange data of it without the host.
  [[nodiscard]] bool goes_inside() const noexcept { return plan && plan->goes_inside(); }
  [[nodiscard]] std::uint32_t last() const noexcept { return first + steps - 1; }
};

}  // namespace weft::staged
