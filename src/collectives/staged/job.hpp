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

/// A collective, or messages that complete together, on the way through the host. The thread that makes calls creates
/// and enqueues it; the courier's thread does the host's part.
struct Job {
  Call call;                       ///< its number, its time limit, and what reports say about it
  std::unique_ptr<Plan> plan;      ///< of a collective; null for messages
  std::vector<Message> messages;   ///< of messages; each `data` is pinned memory for the whole message
  std::vector<void*> device_data;  ///< where their data is on the device
  std::vector<std::shared_ptr<std::byte>> memory;
  std::uint32_t first = 0;  ///< number of its first step
  std::uint32_t steps = 1;
  std::uint32_t last_of_work = 0;                      ///< number of the last step of all jobs that share its Work
  std::shared_ptr<cuda::SharedFailure> failure;        ///< its Work's
  std::chrono::steady_clock::time_point exchanged_at;  ///< set by the courier: when the host had finished

  /// Both are set by the enqueueing thread when it has finished; without a Work if it failed.
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

  /// Whether GPUs exchange some of its data without the host.
  [[nodiscard]] bool goes_inside() const noexcept { return plan && plan->goes_inside(); }
  [[nodiscard]] std::uint32_t last() const noexcept { return first + steps - 1; }
};

}  // namespace weft::staged
